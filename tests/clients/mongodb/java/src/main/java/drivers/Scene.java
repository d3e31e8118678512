package drivers;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.bson.Document;

/** A client, and an empty collection of the check's own. */
record Scene(MongoClient client, MongoDatabase database, MongoCollection<Document> notes) implements AutoCloseable {
    static final String NAME = "java";

    static MongoClientSettings.Builder settings(String url) {
        return MongoClientSettings.builder()
            .applyConnectionString(new ConnectionString(url))
            .applyToClusterSettings(cluster -> cluster.serverSelectionTimeout(15, TimeUnit.SECONDS));
    }

    static Scene open(String url, String name) {
        return open(settings(url).build(), name);
    }

    static Scene open(MongoClientSettings settings, String name) {
        MongoClient client = MongoClients.create(settings);
        MongoDatabase database = client.getDatabase(NAME);
        MongoCollection<Document> notes = database.getCollection(name);
        notes.deleteMany(new Document());
        return new Scene(client, database, notes);
    }

    @Override
    public void close() {
        client.close();
    }

    /** Documents with `_id` from 0, `n` from 0 to 9, and a text. */
    static List<Document> documents(int count, int size) {
        List<Document> all = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            all.add(new Document("_id", number).append("n", number % 10).append("text", text(number, size)));
        }
        return all;
    }

    /** A text of this length. Weir refuses a message that compresses to less than a 200th, as one of equal letters would. */
    static String text(int seed, int length) {
        IntStream letters = new Random(seed).ints(length, 'a', 'z' + 1);
        return letters.collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append).toString();
    }

    static List<Integer> ids(Iterable<Document> found) {
        List<Integer> ids = new ArrayList<>();
        found.forEach(one -> ids.add(one.getInteger("_id")));
        return ids;
    }

    /** The next request with this command fails. */
    void fail(String command, Document data) {
        Document point = new Document("configureFailPoint", "failCommand")
            .append("mode", new Document("times", 1))
            .append("data", new Document("failCommands", List.of(command)).append("closeConnection", false));
        point.get("data", Document.class).putAll(data);
        client.getDatabase("admin").runCommand(point);
    }

    static void equal(Object got, Object want) {
        if (!Objects.equals(got, want)) {
            throw new AssertionError(got + " instead of " + want);
        }
    }

    /** Something that must fail. */
    interface Action {
        void run() throws Exception;
    }

    static void refused(int code, Action action) throws Exception {
        try {
            action.run();
        } catch (MongoException error) {
            Throwable cause = error;
            while (cause instanceof MongoException known && known.getCode() != code && known.getCause() != null) {
                cause = known.getCause();
            }
            equal(cause instanceof MongoException known ? known.getCode() : cause, code);
            return;
        }
        throw new AssertionError("no error with code " + code);
    }
}
