package clients;

import java.util.Arrays;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/** One address to test: a real server, or Weir in front of one. See tests/src/bin/stage.rs. */
record Target(String name, String server, String via, String host, int port, int authPort, String password) {
  private static final AtomicInteger NUMBERS = new AtomicInteger();

  /** Reads WEIR_TARGETS; without it the suite cannot say anything, so it fails. */
  static Stream<Target> all() {
    String text = System.getenv("WEIR_TARGETS");
    if (text == null || text.isEmpty()) {
      throw new IllegalStateException("WEIR_TARGETS is not set: run `cargo xtask test clients:java`");
    }
    return Arrays.stream(text.split(";")).map(Target::parse);
  }

  private static Target parse(String part) {
    List<String> words = List.of(part.split(" "));
    return new Target(
        words.get(0),
        words.get(1),
        words.get(2),
        words.get(3),
        Integer.parseInt(words.get(4)),
        Integer.parseInt(words.get(5)),
        words.get(6));
  }

  /** A key prefix that no other test uses, so that nothing has to be flushed. */
  static String freshKey(String test) {
    return "java:" + ProcessHandle.current().pid() + ":" + NUMBERS.incrementAndGet() + ":" + test;
  }

  /** Waits until a condition holds, at most ten seconds. */
  static void until(String what, BooleanSupplier condition) throws InterruptedException {
    long ends = System.nanoTime() + 10_000_000_000L;
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() > ends) {
        throw new AssertionError("waited for: " + what);
      }
      Thread.sleep(2);
    }
  }

  @Override
  public String toString() {
    return name;
  }
}
