package clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.ClientOptions;
import io.lettuce.core.Consumer;
import io.lettuce.core.KeyValue;
import io.lettuce.core.Limit;
import io.lettuce.core.Range;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisException;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisNoScriptException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.ScanArgs;
import io.lettuce.core.ScanIterator;
import io.lettuce.core.ScriptOutputType;
import io.lettuce.core.StreamMessage;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.XGroupCreateArgs;
import io.lettuce.core.XReadArgs;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.protocol.ProtocolVersion;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/** Lettuce with RESP2, RESP3, and its own discovery of the version by HELLO. */
@Timeout(60)
class LettuceTest {
  /** `null` lets the library find out. */
  static Stream<Arguments> cases() {
    return Target.all()
        .flatMap(
            target ->
                Stream.of("RESP2", "RESP3", "discover").map(protocol -> Arguments.of(target, protocol)));
  }

  private static RedisClient client(String host, int port, String protocol, String password) {
    RedisURI.Builder uri = RedisURI.builder().withHost(host).withPort(port).withTimeout(Duration.ofSeconds(20));
    if (password != null) {
      uri.withPassword(password.toCharArray());
    }
    RedisClient client = RedisClient.create(uri.build());
    ClientOptions.Builder options = ClientOptions.builder();
    if (!protocol.equals("discover")) {
      options.protocolVersion(ProtocolVersion.valueOf(protocol));
    }
    client.setOptions(options.build());
    return client;
  }

  private interface Body {
    void run(RedisClient client, RedisCommands<String, String> commands) throws Exception;
  }

  private static void with(Target target, String protocol, Body body) throws Exception {
    RedisClient client = client(target.host(), target.port(), protocol, null);
    try (StatefulRedisConnection<String, String> connection = client.connect()) {
      body.run(client, connection.sync());
    } finally {
      client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void valuesScriptsAndScans(Target target, String protocol) throws Exception {
    String key = Target.freshKey("lettuce");
    with(target, protocol, (client, commands) -> {
      assertEquals("OK", commands.set(key, "value"));
      assertEquals("value", commands.get(key));
      assertEquals(2, commands.hset(key + ":h", Map.of("a", "1", "b", "2")));
      assertEquals(Map.of("a", "1", "b", "2"), commands.hgetall(key + ":h"));
      Long counted =
          commands.eval("return redis.call('INCR', KEYS[1])", ScriptOutputType.INTEGER, key + ":n");
      assertEquals(1L, counted);
      assertThrows(
          RedisNoScriptException.class,
          () -> commands.evalsha("c".repeat(40), ScriptOutputType.INTEGER));
      for (int n = 0; n < 150; n++) {
        commands.set(key + ":s" + n, "v");
      }
      ScanIterator<String> iterator =
          ScanIterator.scan(commands, ScanArgs.Builder.matches(key + ":s*").limit(40));
      assertEquals(150, iterator.stream().distinct().count());
      RedisException unknown =
          assertThrows(RedisException.class, () -> commands.get(key + ":h"));
      assertTrue(unknown.getMessage().startsWith("WRONGTYPE"), unknown.getMessage());
    });
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void thousandsOfCommandsInFlightKeepOrder(Target target, String protocol) throws Exception {
    String key = Target.freshKey("flight");
    RedisClient client = client(target.host(), target.port(), protocol, null);
    try (StatefulRedisConnection<String, String> connection = client.connect()) {
      List<RedisFuture<String>> replies = new ArrayList<>();
      for (int n = 0; n < 4_000; n++) {
        replies.add(connection.async().echo(key + n));
      }
      for (int n = 0; n < replies.size(); n++) {
        assertEquals(key + n, replies.get(n).get(20, TimeUnit.SECONDS));
      }
    } finally {
      client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void transactions(Target target, String protocol) throws Exception {
    String key = Target.freshKey("multi");
    with(target, protocol, (client, commands) -> {
      commands.multi();
      commands.set(key, "1");
      commands.incr(key);
      TransactionResult done = commands.exec();
      assertEquals(2L, done.<Long>get(1));
      try (StatefulRedisConnection<String, String> other = client.connect()) {
        commands.watch(key);
        other.sync().set(key, "foreign");
        commands.multi();
        commands.set(key, "mine");
        assertTrue(commands.exec().wasDiscarded());
        assertEquals("foreign", commands.get(key));
      }
    });
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void blockingAndStreams(Target target, String protocol) throws Exception {
    String key = Target.freshKey("block");
    with(target, protocol, (client, commands) -> {
      try (StatefulRedisConnection<String, String> other = client.connect()) {
        RedisFuture<KeyValue<String, String>> waiting = other.async().blpop(10, key);
        Target.until("the pop to wait", () -> commands.info("clients").contains("blocked_clients:1"));
        commands.rpush(key, "late");
        assertEquals("late", waiting.get(10, TimeUnit.SECONDS).getValue());
        assertNull(other.sync().blpop(1, key));
      }
      String stream = key + ":x";
      commands.xgroupCreate(
          XReadArgs.StreamOffset.from(stream, "0"), "group", XGroupCreateArgs.Builder.mkstream());
      String id = commands.xadd(stream, Map.of("field", "value"));
      List<StreamMessage<String, String>> read =
          commands.xreadgroup(
              Consumer.from("group", "one"),
              XReadArgs.Builder.block(5_000),
              XReadArgs.StreamOffset.lastConsumed(stream));
      assertEquals(id, read.get(0).getId());
      assertEquals(
          1, commands.xpending(stream, "group", Range.unbounded(), Limit.from(10)).size());
      assertEquals(1, commands.xack(stream, "group", id));
    });
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void subscriptionsSurviveACut(Target target, String protocol) throws Exception {
    String key = Target.freshKey("channel");
    try (Forwarder between = new Forwarder(target.host(), target.port())) {
      RedisClient client = client(target.host(), between.port(), protocol, null);
      ConcurrentLinkedQueue<String> got = new ConcurrentLinkedQueue<>();
      try (StatefulRedisPubSubConnection<String, String> subscriber = client.connectPubSub();
          StatefulRedisConnection<String, String> connection = client.connect()) {
        subscriber.addListener(new RedisPubSubAdapter<>() {
          @Override
          public void message(String channel, String message) {
            got.add(message);
          }
        });
        subscriber.sync().subscribe(key);
        assertEquals(1, connection.sync().publish(key, "first"));
        Target.until("the first message", () -> got.contains("first"));
        connection.sync().set(key, "before");
        between.cut();
        Target.until("a message after the cut", () -> {
          try {
            connection.sync().publish(key, "after");
          } catch (RedisException disconnected) {
            return false;
          }
          return got.contains("after");
        });
        assertEquals("before", connection.sync().get(key));
      } finally {
        client.shutdown(Duration.ZERO, Duration.ofSeconds(2));
      }
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void passwords(Target target, String protocol) {
    RedisClient good = client(target.host(), target.authPort(), protocol, target.password());
    RedisClient bad = client(target.host(), target.authPort(), protocol, "wrong");
    try (StatefulRedisConnection<String, String> connection = good.connect()) {
      assertEquals("PONG", connection.sync().ping());
      assertThrows(RedisException.class, bad::connect);
    } finally {
      good.shutdown(Duration.ZERO, Duration.ofSeconds(2));
      bad.shutdown(Duration.ZERO, Duration.ofSeconds(2));
    }
  }
}
