package clients;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** Passes bytes on; a test can cut its connections to see a client come back. */
final class Forwarder implements AutoCloseable {
  private final ServerSocket listener;
  private final List<Socket> open = new CopyOnWriteArrayList<>();

  Forwarder(String host, int port) throws IOException {
    listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
    start(() -> {
      while (true) {
        Socket client = listener.accept();
        Socket server = new Socket(host, port);
        open.add(client);
        open.add(server);
        start(() -> pump(client, server));
        start(() -> pump(server, client));
      }
    });
  }

  int port() {
    return listener.getLocalPort();
  }

  /** Ends every connection that is open now. */
  void cut() {
    for (Socket socket : open) {
      closeQuietly(socket);
    }
    open.clear();
  }

  @Override
  public void close() throws IOException {
    listener.close();
    cut();
  }

  private interface Body {
    void run() throws IOException;
  }

  private static void start(Body body) {
    Thread thread = new Thread(() -> {
      try {
        body.run();
      } catch (IOException gone) {
        // A closed socket ends this direction.
      }
    });
    thread.setDaemon(true);
    thread.start();
  }

  private static void pump(Socket source, Socket sink) throws IOException {
    try {
      source.getInputStream().transferTo(sink.getOutputStream());
    } finally {
      closeQuietly(source);
      closeQuietly(sink);
    }
  }

  private static void closeQuietly(Socket socket) {
    try {
      socket.close();
    } catch (IOException closed) {
      // It was closed already.
    }
  }
}
