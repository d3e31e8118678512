package drivers;

import static drivers.Scene.equal;
import static drivers.Scene.ids;

import com.mongodb.client.model.Filters;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.Updates;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.bson.Document;

/** Checks that need the scripted server of the lab that stores documents. */
final class Stored {
    private Stored() {}

    static Map<String, Main.Check> checks() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("a transaction is seen behind its commit alone", Stored::committed);
        checks.put("an aborted transaction leaves nothing", Stored::aborted);
        checks.put("a write that was done and is repeated counts once", Stored::repeated);
        return checks;
    }

    private static List<Integer> all(Scene scene) {
        return ids(scene.notes().find().batchSize(2).sort(Sorts.ascending("_id")));
    }

    private static void committed(String url) {
        try (Scene scene = Scene.open(url, "committed"); var session = scene.client().startSession()) {
            session.startTransaction();
            scene.notes().insertMany(session, Scene.documents(5, 0));
            equal(all(scene), List.of());
            equal(ids(scene.notes().find(session).batchSize(2).sort(Sorts.ascending("_id"))), List.of(0, 1, 2, 3, 4));
            session.commitTransaction();
            equal(all(scene), List.of(0, 1, 2, 3, 4));
        }
    }

    private static void aborted(String url) {
        try (Scene scene = Scene.open(url, "aborted"); var session = scene.client().startSession()) {
            scene.notes().insertOne(new Document("_id", 1).append("n", 0));
            session.startTransaction();
            scene.notes().insertOne(session, new Document("_id", 2));
            scene.notes().updateOne(session, Filters.eq(1), Updates.inc("n", 9));
            session.abortTransaction();
            equal(all(scene), List.of(1));
            equal(scene.notes().find(Filters.eq(1)).first(), new Document("_id", 1).append("n", 0));
        }
    }

    /** The next such command is carried out, and its reply makes the driver send it again. */
    private static void doneAndRepeated(Scene scene, String command) {
        // The driver sends a write again for the write concern errors of a server that shuts down, and no others.
        Document late = new Document("code", 91).append("errmsg", "shutdown in progress");
        scene.fail(command, new Document("writeConcernError", late).append("errorLabels", List.of("RetryableWriteError")));
    }

    private static void repeated(String url) {
        try (Scene scene = Scene.open(url, "repeated")) {
            doneAndRepeated(scene, "insert");
            scene.notes().insertOne(new Document("_id", 1).append("n", 0));
            doneAndRepeated(scene, "update");
            scene.notes().updateOne(Filters.eq(1), Updates.inc("n", 1));
            equal(((Number) scene.notes().find(Filters.eq(1)).first().get("n")).intValue(), 1);
        }
    }
}
