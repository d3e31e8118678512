package drivers;

import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Checks the blocking driver of Java: {@code Main URL LIST}, with the list {@code server}, {@code scripted}, {@code stored} or
 * {@code login}. A line for each check: {@code ok NAME} or {@code failed NAME: REASON}.
 */
public final class Main {
    private Main() {}

    /** One check. */
    interface Check {
        void run(String url) throws Exception;
    }

    public static void main(String[] words) {
        int failed = 0;
        Map<String, Check> checks = switch (words[1]) {
            case "server" -> Server.checks();
            case "scripted" -> Scripted.checks();
            case "stored" -> Stored.checks();
            case "login" -> Logins.checks();
            default -> throw new IllegalArgumentException(words[1]);
        };
        var executor = Executors.newCachedThreadPool(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });
        for (var check : checks.entrySet()) {
            try {
                var done = executor.submit(() -> {
                    check.getValue().run(words[0]);
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
}
