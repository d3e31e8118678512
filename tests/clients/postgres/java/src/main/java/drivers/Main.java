package drivers;

import java.net.URI;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/** Checks the JDBC driver: {@code Main URL}. A line for each check: {@code ok NAME} or {@code failed NAME: REASON}. */
public final class Main {
    private Main() {}

    /** One check. */
    interface Check {
        void run(Target target) throws Exception;
    }

    public static void main(String[] words) {
        Target target = Target.of(URI.create(words[0]));
        int failed = 0;
        Map<String, Check> checks = Jdbc.checks();
        var executor = Executors.newCachedThreadPool(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });
        for (var check : checks.entrySet()) {
            try {
                var done = executor.submit(() -> {
                    check.getValue().run(target);
                    return null;
                });
                done.get(30, TimeUnit.SECONDS);
                System.out.println("ok " + check.getKey());
            } catch (Exception error) {
                failed++;
                Throwable cause = error.getCause() == null ? error : error.getCause();
                System.out.println("failed " + check.getKey() + ": " + cause.toString().replaceAll("\\s+", " "));
            }
        }
        System.out.println("end " + checks.size() + " checks");
        System.exit(failed > 0 ? 1 : 0);
    }

    /** Where the driver connects. */
    record Target(String url, String user, String password) {
        static Target of(URI uri) {
            String[] login = uri.getUserInfo().split(":");
            return new Target("jdbc:postgresql://" + uri.getHost() + ":" + uri.getPort() + uri.getPath(), login[0], login[1]);
        }

        Properties properties(String... pairs) {
            Properties properties = new Properties();
            properties.setProperty("user", user);
            properties.setProperty("password", password);
            properties.setProperty("sslmode", "disable");
            for (int index = 0; index < pairs.length; index += 2) {
                properties.setProperty(pairs[index], pairs[index + 1]);
            }
            return properties;
        }
    }
}
