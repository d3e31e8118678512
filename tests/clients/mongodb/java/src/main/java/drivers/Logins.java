package drivers;

import static drivers.Scene.equal;

import com.mongodb.MongoCredential;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.Map;

/** Checks of logins: the URL has a user and a password. */
final class Logins {
    private Logins() {}

    static Map<String, Main.Check> checks() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("the right password is enough", Logins::right);
        checks.put("both mechanisms of SCRAM", Logins::mechanisms);
        checks.put("a wrong password is refused", Logins::wrong);
        return checks;
    }

    private static void right(String url) {
        try (Scene scene = Scene.open(url, "logins")) {
            scene.notes().insertMany(Scene.documents(30, 0));
            equal(scene.notes().find().batchSize(4).into(new ArrayList<>()).size(), 30);
        }
    }

    private static void mechanisms(String url) {
        MongoCredential known = Scene.settings(url).build().getCredential();
        var all = new MongoCredential[] {
            MongoCredential.createScramSha256Credential(known.getUserName(), known.getSource(), known.getPassword()),
            MongoCredential.createScramSha1Credential(known.getUserName(), known.getSource(), known.getPassword()),
        };
        for (MongoCredential credential : all) {
            try (Scene scene = Scene.open(Scene.settings(url).credential(credential).build(), "mechanisms")) {
                equal(scene.notes().find().first(), null);
            }
        }
    }

    private static void wrong(String url) throws Exception {
        MongoCredential known = Scene.settings(url).build().getCredential();
        MongoCredential wrong = MongoCredential.createCredential(known.getUserName(), known.getSource(), "wrong".toCharArray());
        Scene.refused(18, () -> Scene.open(Scene.settings(url).credential(wrong).build(), "logins").close());
    }
}
