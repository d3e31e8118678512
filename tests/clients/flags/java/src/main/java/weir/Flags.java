package weir;

import io.getunleash.DefaultUnleash;
import io.getunleash.engine.FeatureCount;
import io.getunleash.event.UnleashSubscriber;
import io.getunleash.metric.ClientMetrics;
import io.getunleash.util.UnleashConfig;
import java.util.concurrent.atomic.AtomicLong;

/** The SDK of Java: {@code Flags URL TOKEN FLAG APPLICATION [polling|streaming]}, with the output of the programs in {@code ../node}. */
public final class Flags {
    private static final long INTERVAL_MS = 100;
    private static final long SENT_DEADLINE_MS = 30_000;

    private Flags() {}

    public static void main(String[] words) throws Exception {
        String flag = words[2];
        Sent sent = new Sent(flag);
        UnleashConfig.Builder builder =
                UnleashConfig.builder()
                        .unleashAPI(words[0] + "/api/")
                        .customHttpHeader("Authorization", words[1])
                        .appName(words[3])
                        .fetchTogglesInterval(1)
                        .sendMetricsInterval(1)
                        .subscriber(sent)
                        .synchronousFetchOnInitialisation(true);
        if (words.length > 4 && words[4].equals("streaming")) {
            builder.experimentalStreamingMode();
        }
        DefaultUnleash unleash = new DefaultUnleash(builder.build());
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
        sent.await(yes, no);
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

    /** The counts of a flag that the SDK has sent. */
    private static final class Sent implements UnleashSubscriber {
        private final String flag;
        private final AtomicLong yes = new AtomicLong();
        private final AtomicLong no = new AtomicLong();

        Sent(String flag) {
            this.flag = flag;
        }

        @Override
        public void clientMetrics(ClientMetrics metrics) {
            FeatureCount count = metrics.getBucket() == null ? null : metrics.getBucket().getToggles().get(flag);
            if (count != null) {
                yes.addAndGet(count.getYes());
                no.addAndGet(count.getNo());
            }
        }

        @Override
        public void onError(io.getunleash.UnleashException error) {
            System.err.println(error);
        }

        /** Waits until all are sent: the SDK has no last flush, so that they leave with its next interval. */
        void await(long wantedYes, long wantedNo) throws InterruptedException {
            long deadline = System.nanoTime() + SENT_DEADLINE_MS * 1_000_000;
            while (yes.get() != wantedYes || no.get() != wantedNo) {
                if (System.nanoTime() > deadline) {
                    System.err.printf("the SDK has sent %s and %s of %s and %s counts in time%n", yes, no, wantedYes, wantedNo);
                    System.exit(1);
                }
                Thread.sleep(INTERVAL_MS);
            }
        }
    }
}
