"""UnleashClient of Python: `watch.py URL TOKEN FLAG APPLICATION [polling|streaming]`, with the output of the programs in `../node`."""

import sys
import tempfile
import threading

from UnleashClient import UnleashClient

INTERVAL = 0.1


def main() -> None:
    url, token, flag, application = sys.argv[1:5]
    mode = sys.argv[5] if len(sys.argv) > 5 else "polling"
    with tempfile.TemporaryDirectory() as folder:
        client = UnleashClient(
            url=f"{url}/api",
            app_name=application,
            custom_headers={"Authorization": token},
            refresh_interval=1,
            metrics_interval=1,
            cache_directory=folder,
            experimental_mode={"type": mode},
        )
        client.initialize_client()
        ends = threading.Event()
        threading.Thread(target=lambda: (sys.stdin.read(), ends.set()), daemon=True).start()
        counts, last = {True: 0, False: 0}, None
        while not ends.is_set():
            on = client.is_enabled(flag)
            counts[on] += 1
            if on != last:
                print("state on" if on else "state off", flush=True)
            last = on
            ends.wait(INTERVAL)
        # It sends what is left, and waits for a request that is under way.
        client.destroy()
        print(f"counts {counts[True]} {counts[False]}", flush=True)


main()
