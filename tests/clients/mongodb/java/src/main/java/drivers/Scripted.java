package drivers;

import static drivers.Scene.equal;

import com.mongodb.WriteConcern;
import com.mongodb.client.model.Filters;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.bson.Document;

/** Checks that need the scripted server of the lab. */
final class Scripted {
    private Scripted() {}

    static Map<String, Main.Check> checks() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("cursors over many batches, many at a time", Scripted::batches);
        checks.put("unacknowledged writes", Scripted::unacknowledged);
        checks.put("transactions commit and abort", Scripted::transactions);
        checks.put("a transaction is repeated after a transient error", Scripted::transient_);
        checks.put("a write and a read are repeated once after a lost connection", Scripted::repeated);
        checks.put("a change stream shows writes of others", Scripted::watched);
        return checks;
    }

    private static void transactions(String url) {
        try (Scene scene = Scene.open(url, "transactions"); var session = scene.client().startSession()) {
            session.withTransaction(() -> {
                scene.notes().insertOne(session, new Document("_id", 1));
                equal(scene.notes().find(session, Filters.eq(5)).comment("within").first().getString("request"), "within");
                return null;
            });
            session.startTransaction();
            scene.notes().insertOne(session, new Document("_id", 2));
            session.abortTransaction();
        }
    }

    private static void batches(String url) throws Exception {
        List<Integer> all = IntStream.rangeClosed(1, 500).boxed().toList();
        var settings = Scene.settings(url).applyToConnectionPoolSettings(pool -> pool.maxSize(6)).build();
        try (Scene scene = Scene.open(settings, "batches")) {
            List<CompletableFuture<Void>> work = new ArrayList<>();
            for (int number = 0; number < 12; number++) {
                String comment = "cursor " + number;
                var find = scene.notes().find().batchSize(20 + number).comment(comment);
                work.add(CompletableFuture.runAsync(() -> {
                    List<Document> found = find.into(new ArrayList<>());
                    equal(found.stream().map(one -> ((Number) one.get("_id")).intValue()).toList(), all);
                    equal(found.stream().allMatch(one -> comment.equals(one.getString("request"))), true);
                }));
            }
            for (var one : work) {
                one.get(25, TimeUnit.SECONDS);
            }
        }
    }

    private static void unacknowledged(String url) throws Exception {
        var settings = Scene.settings(url).applyToConnectionPoolSettings(pool -> pool.maxSize(1)).build();
        try (Scene scene = Scene.open(settings, "unacknowledged")) {
            long before = inserted(scene);
            var silent = scene.notes().withWriteConcern(WriteConcern.UNACKNOWLEDGED);
            Scene.documents(100, 0).forEach(silent::insertOne);
            for (int turn = 0; inserted(scene) < before + 100; turn++) {
                equal(turn < 50, true);
                Thread.sleep(100);
            }
        }
    }

    private static long inserted(Scene scene) {
        Document counts = scene.client().getDatabase("admin").runCommand(new Document("weirOrigin", 1));
        return ((Number) counts.get("inserted")).longValue();
    }

    private static void transient_(String url) {
        try (Scene scene = Scene.open(url, "transient"); var session = scene.client().startSession()) {
            int[] tries = {0};
            session.withTransaction(() -> {
                if (++tries[0] == 1) {
                    var labels = List.of("TransientTransactionError");
                    scene.fail("insert", new Document("errorCode", 112).append("errorLabels", labels));
                }
                scene.notes().insertOne(session, new Document("_id", tries[0]));
                return null;
            });
            equal(tries[0], 2);
        }
    }

    private static void repeated(String url) {
        try (Scene scene = Scene.open(url, "retried")) {
            scene.fail("insert", new Document("closeConnection", true));
            scene.notes().insertOne(new Document("_id", 1));
            scene.fail("find", new Document("closeConnection", true));
            equal(((Number) scene.notes().find(Filters.eq(2)).first().get("_id")).intValue(), 2);
        }
    }

    private static void watched(String url) {
        try (Scene scene = Scene.open(url, "watched");
                var stream = scene.notes().watch().maxAwaitTime(300, TimeUnit.MILLISECONDS).cursor()) {
            equal(stream.tryNext(), null);
            scene.notes().insertOne(new Document("_id", 1));
            equal(stream.next().getDocumentKey().getInt32("_id").getValue(), 1);
        }
    }
}
