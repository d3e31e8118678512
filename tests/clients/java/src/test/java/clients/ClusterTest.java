package clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;

import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;

/** The cluster clients of Lettuce and Jedis: directly, and through Weir. */
@Timeout(60)
class ClusterTest {
  record Where(String name, String host, int port) {
    @Override
    public String toString() {
      return name;
    }
  }

  static Stream<Where> clusters() {
    String text = System.getenv("WEIR_CLUSTERS");
    if (text == null || text.isEmpty()) {
      throw new IllegalStateException("WEIR_CLUSTERS is not set: run `cargo xtask test clients:java`");
    }
    return Arrays.stream(text.split(";"))
        .map(part -> part.split(" "))
        .map(words -> new Where(words[0], words[2], Integer.parseInt(words[3])));
  }

  @ParameterizedTest
  @MethodSource("clusters")
  void lettuceReachesAllSlots(Where where) {
    RedisClusterClient client = RedisClusterClient.create(RedisURI.create(where.host(), where.port()));
    try (StatefulRedisClusterConnection<String, String> connection = client.connect()) {
      RedisAdvancedClusterCommands<String, String> commands = connection.sync();
      String key = Target.freshKey("lettuce-cluster");
      Map<String, String> values = new LinkedHashMap<>();
      IntStream.range(0, 300).forEach(n -> values.put(key + ":" + n, "value " + n));
      assertEquals("OK", commands.mset(values));
      String[] keys = values.keySet().toArray(String[]::new);
      List<KeyValue<String, String>> got = commands.mget(keys);
      assertEquals(List.copyOf(values.values()), got.stream().map(KeyValue::getValue).toList());
      assertEquals(300L, commands.exists(keys));
      assertEquals(300L, commands.del(keys));
      String tagged = "{" + key + "}";
      commands.rpush(tagged + ":l", "a", "b");
      assertEquals("a", commands.lmove(tagged + ":l", tagged + ":m", io.lettuce.core.LMoveArgs.Builder.leftRight()));
    } finally {
      client.shutdown();
    }
  }

  @ParameterizedTest
  @MethodSource("clusters")
  void jedisReachesAllSlots(Where where) {
    try (JedisCluster cluster = new JedisCluster(new HostAndPort(where.host(), where.port()))) {
      String key = Target.freshKey("jedis-cluster");
      IntStream.range(0, 300).forEach(n -> assertEquals("OK", cluster.set(key + ":" + n, "value " + n)));
      IntStream.range(0, 300).forEach(n -> assertEquals("value " + n, cluster.get(key + ":" + n)));
      String tagged = "{" + key + "}";
      assertEquals(2, cluster.rpush(tagged + ":l", "a", "b"));
      assertNotNull(cluster.eval("return redis.call('LLEN', KEYS[1])", 1, tagged + ":l"));
    }
  }
}
