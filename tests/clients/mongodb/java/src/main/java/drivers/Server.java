package drivers;

import static drivers.Scene.documents;
import static drivers.Scene.equal;
import static drivers.Scene.ids;
import static drivers.Scene.text;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.gridfs.GridFSBuckets;
import com.mongodb.client.model.Accumulators;
import com.mongodb.client.model.Aggregates;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.Filters;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.Indexes;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.Sorts;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.Updates;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.stream.IntStream;
import org.bson.Document;

/** Checks that need what any server of documents has. */
final class Server {
    private Server() {}

    static Map<String, Main.Check> checks() {
        Map<String, Main.Check> checks = new LinkedHashMap<>();
        checks.put("inserts and finds", Server::insertsAndFinds);
        checks.put("updates, upserts and deletes", Server::changes);
        checks.put("bulk writes with an error", Server::bulk);
        checks.put("a bulk of many messages", Server::largeBulk);
        checks.put("a cursor over many batches", Server::batches);
        checks.put("a cursor that is closed early is gone", Server::closed);
        checks.put("aggregates, counts and distinct values", Server::aggregates);
        checks.put("unique keys", Server::indexes);
        checks.put("large documents", Server::large);
        checks.put("many at a time on few connections", Server::parallel);
        checks.put("sessions", Server::sessions);
        checks.put("errors have their codes", Server::errors);
        checks.put("files of GridFS", Server::files);
        return checks;
    }

    private static List<Integer> upTo(int count) {
        return IntStream.range(0, count).boxed().toList();
    }

    private static void insertsAndFinds(String url) {
        try (Scene scene = Scene.open(url, "crud")) {
            scene.notes().insertMany(documents(20, 0));
            equal(scene.notes().find(Filters.eq(3)).first(), documents(4, 0).get(3));
            equal(ids(scene.notes().find(Filters.gt("n", 7)).sort(Sorts.descending("_id")).limit(3)), List.of(19, 18, 9));
            equal(scene.notes().find(Filters.eq("nothing")).first(), null);
        }
    }

    private static void changes(String url) {
        try (Scene scene = Scene.open(url, "changes")) {
            var notes = scene.notes();
            notes.insertMany(documents(20, 0));
            equal(notes.updateMany(Filters.eq("n", 1), Updates.set("n", 50)).getModifiedCount(), 2L);
            notes.updateOne(Filters.eq(77), Updates.set("n", 1), new UpdateOptions().upsert(true));
            equal(notes.find(Filters.eq(77)).first(), new Document("_id", 77).append("n", 1));
            var after = new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER);
            equal(notes.findOneAndUpdate(Filters.eq(2), Updates.inc("n", 5), after).getInteger("n"), 7);
            equal(notes.replaceOne(Filters.eq(77), new Document("other", true)).getModifiedCount(), 1L);
            equal(notes.deleteMany(Filters.eq("n", 50)).getDeletedCount(), 2L);
        }
    }

    private static void bulk(String url) {
        try (Scene scene = Scene.open(url, "bulk")) {
            var work = List.of(
                new InsertOneModel<>(new Document("_id", 1)),
                new InsertOneModel<>(new Document("_id", 1)),
                new InsertOneModel<>(new Document("_id", 2)),
                new UpdateOneModel<Document>(Filters.eq(2), Updates.set("n", 4)));
            try {
                scene.notes().bulkWrite(work, new BulkWriteOptions().ordered(false));
                throw new AssertionError("no error");
            } catch (MongoBulkWriteException error) {
                equal(error.getWriteResult().getInsertedCount(), 2);
                equal(error.getWriteResult().getModifiedCount(), 1);
                equal(error.getWriteErrors().get(0).getCode(), 11000);
            }
        }
    }

    private static void largeBulk(String url) {
        try (Scene scene = Scene.open(url, "large_bulk")) {
            scene.notes().insertMany(documents(3_000, 2_000));
            equal(scene.notes().countDocuments(), 3_000L);
        }
    }

    private static void batches(String url) {
        try (Scene scene = Scene.open(url, "batches")) {
            scene.notes().insertMany(documents(700, 50));
            equal(ids(scene.notes().find().batchSize(6).sort(Sorts.ascending("_id"))), upTo(700));
        }
    }

    private static void closed(String url) throws Exception {
        try (Scene scene = Scene.open(url, "closed")) {
            scene.notes().insertMany(documents(50, 0));
            long id;
            try (MongoCursor<Document> cursor = scene.notes().find().batchSize(5).cursor()) {
                cursor.next();
                id = cursor.getServerCursor().getId();
            }
            Document more = new Document("getMore", id).append("collection", "closed");
            Scene.refused(43, () -> scene.database().runCommand(more));
        }
    }

    private static void aggregates(String url) {
        try (Scene scene = Scene.open(url, "aggregates")) {
            scene.notes().insertMany(documents(60, 0));
            var stages = List.of(
                Aggregates.group("$n", Accumulators.sum("count", 1)), Aggregates.sort(Sorts.ascending("_id")));
            List<Document> groups = scene.notes().aggregate(stages).into(new ArrayList<>());
            equal(groups, upTo(10).stream().map(n -> new Document("_id", n).append("count", 6)).toList());
            equal(scene.notes().countDocuments(Filters.eq("n", 4)), 6L);
            equal(scene.notes().distinct("n", Integer.class).into(new ArrayList<>()).size(), 10);
        }
    }

    private static void indexes(String url) throws Exception {
        try (Scene scene = Scene.open(url, "indexes")) {
            String name = scene.notes().createIndex(Indexes.ascending("n"), new IndexOptions().unique(true));
            equal(name, "n_1");
            scene.notes().insertOne(new Document("_id", 1).append("n", 1));
            Scene.refused(11000, () -> scene.notes().insertOne(new Document("_id", 2).append("n", 1)));
            scene.notes().dropIndex(name);
        }
    }

    private static void large(String url) {
        try (Scene scene = Scene.open(url, "large")) {
            for (int size : new int[] {16_384, 262_144, 1_048_576, 8_388_608}) {
                Document document = new Document("_id", size).append("text", text(size, size));
                scene.notes().insertOne(document);
                equal(scene.notes().find(Filters.eq(size)).first(), document);
            }
        }
    }

    private static void parallel(String url) throws Exception {
        var settings = Scene.settings(url).applyToConnectionPoolSettings(pool -> pool.maxSize(5)).build();
        try (Scene scene = Scene.open(settings, "parallel"); var threads = new Threads()) {
            List<Callable<Void>> work = new ArrayList<>();
            for (int owner = 0; owner < 30; owner++) {
                int first = owner * 100;
                work.add(() -> {
                    List<Integer> ids = IntStream.range(first, first + 8).boxed().toList();
                    ids.forEach(id -> scene.notes().insertOne(new Document("_id", id).append("owner", first)));
                    equal(ids(scene.notes().find(Filters.eq("owner", first)).batchSize(3).sort(Sorts.ascending("_id"))), ids);
                    return null;
                });
            }
            for (var done : threads.executor.invokeAll(work)) {
                done.get();
            }
        }
    }

    /** Threads that end with the check. */
    private static final class Threads implements AutoCloseable {
        final java.util.concurrent.ExecutorService executor = Executors.newFixedThreadPool(10);

        @Override
        public void close() {
            executor.shutdownNow();
        }
    }

    private static void sessions(String url) {
        try (Scene scene = Scene.open(url, "sessions"); var session = scene.client().startSession()) {
            scene.notes().insertOne(session, new Document("_id", 1));
            equal(scene.notes().find(session).first(), new Document("_id", 1));
        }
    }

    private static void errors(String url) throws Exception {
        try (Scene scene = Scene.open(url, "errors")) {
            Scene.refused(59, () -> scene.database().runCommand(new Document("noSuchCommand", 1)));
            equal(((Number) scene.database().runCommand(new Document("ping", 1)).get("ok")).intValue(), 1);
        }
    }

    private static void files(String url) {
        try (Scene scene = Scene.open(url, "files")) {
            var bucket = GridFSBuckets.create(scene.database()).withChunkSizeBytes(50_000);
            byte[] content = text(7, 560_000).getBytes();
            var id = bucket.uploadFromStream("report", new ByteArrayInputStream(content));
            var output = new ByteArrayOutputStream();
            bucket.downloadToStream(id, output);
            equal(Arrays.equals(output.toByteArray(), content), true);
            bucket.delete(id);
        }
    }
}
