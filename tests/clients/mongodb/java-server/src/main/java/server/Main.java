package server;

import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;

/** Serves mongo-java-server from memory: {@code Main PORT}. */
public final class Main {
    private Main() {}

    public static void main(String[] words) {
        new MongoServer(new MemoryBackend()).bind("127.0.0.1", Integer.parseInt(words[0]));
    }
}
