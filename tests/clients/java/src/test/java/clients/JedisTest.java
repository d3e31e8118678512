package clients;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Stream;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPubSub;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.StreamEntryID;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.exceptions.JedisAccessControlException;
import redis.clients.jedis.exceptions.JedisConnectionException;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.exceptions.JedisNoScriptException;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.XReadGroupParams;
import redis.clients.jedis.params.XReadParams;

/** Jedis with RESP2 and RESP3. */
@Timeout(60)
class JedisTest {
  static Stream<Arguments> cases() {
    return Target.all()
        .flatMap(target -> Stream.of(RedisProtocol.RESP2, RedisProtocol.RESP3).map(protocol -> Arguments.of(target, protocol)));
  }

  private static Jedis open(Target target, RedisProtocol protocol) {
    return open(target.host(), target.port(), protocol, null, null);
  }

  private static Jedis open(String host, int port, RedisProtocol protocol, String user, String password) {
    DefaultJedisClientConfig config =
        DefaultJedisClientConfig.builder()
            .protocol(protocol)
            .user(user)
            .password(password)
            .socketTimeoutMillis(20_000)
            .build();
    return new Jedis(new HostAndPort(host, port), config);
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void plainValuesAndErrors(Target target, RedisProtocol protocol) {
    String key = Target.freshKey("plain");
    try (Jedis jedis = open(target, protocol)) {
      assertEquals("OK", jedis.set(key, "value"));
      assertEquals("value", jedis.get(key));
      assertEquals(2, jedis.hset(key + ":h", Map.of("a", "1", "b", "2")));
      assertEquals(Map.of("a", "1", "b", "2"), jedis.hgetAll(key + ":h"));
      jedis.zadd(key + ":z", 1.5, "m");
      assertEquals(1.5, jedis.zrangeWithScores(key + ":z", 0, -1).get(0).getScore());
      assertNull(jedis.get(key + ":absent"));
      JedisDataException wrong = assertThrows(JedisDataException.class, () -> jedis.get(key + ":h"));
      assertTrue(wrong.getMessage().startsWith("WRONGTYPE"), wrong.getMessage());
      assertEquals(3, jedis.del(key, key + ":h", key + ":z"));
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void largeValues(Target target, RedisProtocol protocol) {
    byte[] key = Target.freshKey("large").getBytes();
    try (Jedis jedis = open(target, protocol)) {
      for (int size : new int[] {1 << 10, 1 << 20, 8 << 20}) {
        byte[] value = new byte[size];
        new Random(size).nextBytes(value);
        jedis.set(key, value);
        assertArrayEquals(value, jedis.get(key));
      }
      jedis.del(key);
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void pipelinesKeepOrder(Target target, RedisProtocol protocol) {
    String key = Target.freshKey("pipeline");
    try (Jedis jedis = open(target, protocol)) {
      Pipeline pipeline = jedis.pipelined();
      List<Response<String>> replies = new ArrayList<>();
      for (int n = 0; n < 2_000; n++) {
        pipeline.set(key + n, "v" + n);
        replies.add(pipeline.get(key + n));
      }
      pipeline.sync();
      for (int n = 0; n < replies.size(); n++) {
        assertEquals("v" + n, replies.get(n).get());
      }
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void watchSeesForeignWrites(Target target, RedisProtocol protocol) {
    String key = Target.freshKey("watch");
    try (Jedis jedis = open(target, protocol);
        Jedis other = open(target, protocol)) {
      jedis.watch(key);
      other.set(key, "foreign");
      Transaction lost = jedis.multi();
      lost.set(key, "mine");
      assertNull(lost.exec());
      jedis.watch(key);
      Transaction won = jedis.multi();
      won.set(key, "mine");
      Response<String> got = won.get(key);
      assertEquals(2, won.exec().size());
      assertEquals("mine", got.get());
      Transaction dropped = jedis.multi();
      dropped.set(key, "never");
      assertEquals("OK", dropped.discard());
      assertEquals("mine", other.get(key));
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void blockingPops(Target target, RedisProtocol protocol) throws Exception {
    String key = Target.freshKey("block");
    ConcurrentLinkedQueue<List<String>> popped = new ConcurrentLinkedQueue<>();
    Thread waiter = new Thread(() -> {
      try (Jedis jedis = open(target, protocol)) {
        popped.add(jedis.blpop(10, key));
      }
    });
    waiter.start();
    try (Jedis jedis = open(target, protocol)) {
      Target.until("the pop to wait at the server", () -> jedis.info("clients").contains("blocked_clients:1"));
      jedis.rpush(key, "late");
      waiter.join(10_000);
      assertEquals(List.of(key, "late"), popped.poll());
      assertNull(jedis.blpop(1, key));
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void scriptsAndScans(Target target, RedisProtocol protocol) {
    String key = Target.freshKey("script");
    try (Jedis jedis = open(target, protocol)) {
      String body = "return redis.call('INCRBY', KEYS[1], ARGV[1])";
      assertEquals(5L, jedis.eval(body, List.of(key), List.of("5")));
      String sha = jedis.scriptLoad(body);
      assertEquals(10L, jedis.evalsha(sha, List.of(key), List.of("5")));
      assertThrows(JedisNoScriptException.class, () -> jedis.evalsha("d".repeat(40)));
      Set<String> expected = new HashSet<>();
      for (int n = 0; n < 200; n++) {
        jedis.set(key + ":" + n, "v");
        expected.add(key + ":" + n);
      }
      Set<String> found = new HashSet<>();
      String cursor = ScanParams.SCAN_POINTER_START;
      do {
        var page = jedis.scan(cursor, new ScanParams().match(key + ":*").count(50));
        found.addAll(page.getResult());
        cursor = page.getCursor();
      } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
      assertEquals(expected, found);
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void streams(Target target, RedisProtocol protocol) {
    String key = Target.freshKey("stream");
    try (Jedis jedis = open(target, protocol)) {
      jedis.xgroupCreate(key, "group", new StreamEntryID(0, 0), true);
      StreamEntryID id = jedis.xadd(key, StreamEntryID.NEW_ENTRY, Map.of("field", "value"));
      var read =
          jedis.xreadGroup(
              "group",
              "one",
              XReadGroupParams.xReadGroupParams().block(5_000),
              Map.of(key, StreamEntryID.XREADGROUP_UNDELIVERED_ENTRY));
      assertEquals("value", read.get(0).getValue().get(0).getFields().get("field"));
      assertEquals(1, jedis.xack(key, "group", id));
      assertNull(
          jedis.xread(XReadParams.xReadParams().block(50), Map.of(key, StreamEntryID.XREAD_NEW_ENTRY)));
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void publishAndSubscribe(Target target, RedisProtocol protocol) throws Exception {
    String key = Target.freshKey("channel");
    ConcurrentLinkedQueue<String> got = new ConcurrentLinkedQueue<>();
    JedisPubSub subscription = new JedisPubSub() {
      @Override
      public void onMessage(String channel, String message) {
        got.add(message);
      }
    };
    Thread listener = new Thread(() -> {
      try (Jedis jedis = open(target, protocol)) {
        jedis.subscribe(subscription, key);
      }
    });
    listener.start();
    try (Jedis jedis = open(target, protocol)) {
      Target.until("the subscription", () -> jedis.pubsubNumSub(key).get(key) == 1);
      for (int n = 0; n < 200; n++) {
        assertEquals(1, jedis.publish(key, "m" + n));
      }
    }
    Target.until("200 messages", () -> got.size() == 200);
    subscription.unsubscribe(key);
    listener.join(10_000);
    assertTrue(!listener.isAlive(), "the subscription ends when its channel is left");
    List<String> all = new ArrayList<>(got);
    for (int n = 0; n < 200; n++) {
      assertEquals("m" + n, all.get(n));
    }
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void passwords(Target target, RedisProtocol protocol) {
    try (Jedis jedis = open(target.host(), target.authPort(), protocol, null, target.password())) {
      assertEquals("PONG", jedis.ping());
    }
    try (Jedis jedis = open(target.host(), target.authPort(), protocol, "default", target.password())) {
      assertEquals("PONG", jedis.ping());
    }
    assertThrows(
        JedisAccessControlException.class,
        () -> open(target.host(), target.authPort(), protocol, null, "wrong").ping());
  }

  @ParameterizedTest(name = "{0} {1}")
  @MethodSource("cases")
  void aCutConnectionFailsCleanlyAndANewOneWorks(Target target, RedisProtocol protocol) throws Exception {
    String key = Target.freshKey("cut");
    try (Forwarder between = new Forwarder(target.host(), target.port())) {
      Jedis cut = open(target.host(), between.port(), protocol, null, null);
      cut.set(key, "before");
      between.cut();
      assertThrows(JedisConnectionException.class, () -> cut.get(key));
      cut.close();
      try (Jedis again = open(target.host(), between.port(), protocol, null, null)) {
        assertEquals("before", again.get(key));
      }
    }
  }
}
