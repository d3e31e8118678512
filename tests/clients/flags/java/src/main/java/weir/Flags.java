package weir;

import io.getunleash.DefaultUnleash;
import io.getunleash.util.UnleashConfig;

/** The SDK of Java: {@code Flags URL TOKEN FLAG APPLICATION}, with the output of the programs in {@code ../node}. */
public final class Flags {
    private static final long INTERVAL_MS = 100;

    private Flags() {}

    public static void main(String[] words) throws Exception {
        String flag = words[2];
        UnleashConfig config =
                UnleashConfig.builder()
                        .unleashAPI(words[0] + "/api/")
                        .customHttpHeader("Authorization", words[1])
                        .appName(words[3])
                        .fetchTogglesInterval(1)
                        .sendMetricsInterval(1)
                        .synchronousFetchOnInitialisation(true)
                        .build();
        DefaultUnleash unleash = new DefaultUnleash(config);
        Thread input = new Thread(Flags::readToTheEnd);
        input.setDaemon(true);
        input.start();
        long yes = 0;
        long no = 0;
        String last = "";
        while (input.isAlive()) {
            boolean on = unleash.isEnabled(flag);
            yes += on ? 1 : 0;
            no += on ? 0 : 1;
            String state = on ? "on" : "off";
            if (!state.equals(last)) {
                System.out.println("state " + state);
            }
            last = state;
            Thread.sleep(INTERVAL_MS);
        }
        // The counts leave with the next interval at the latest.
        Thread.sleep(2500);
        unleash.shutdown();
        System.out.println("counts " + yes + " " + no);
        System.exit(0);
    }

    private static void readToTheEnd() {
        try {
            System.in.readAllBytes();
        } catch (java.io.IOException error) {
            System.err.println(error);
        }
    }
}
