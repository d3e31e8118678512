"""Writes through PyMongo until its standard input ends: `load.py URL THREADS`. Then it reads what it wrote, and prints one line of JSON:
acknowledged writes, errors, lost writes, and the longest time of a write in seconds."""

import json
import sys
import threading
import time

import pymongo

URL, THREADS = sys.argv[1], int(sys.argv[2])
stop = threading.Event()
lock = threading.Lock()
acknowledged, errors, longest = set(), [], 0.0


def write(notes, thread):
    global longest
    number = 0
    while not stop.is_set():
        number += 1
        key, begun = f"{thread}-{number}", time.monotonic()
        try:
            notes.insert_one({"_id": key})
            with lock:
                acknowledged.add(key)
        except Exception as error:
            with lock:
                errors.append(f"{key}: {error!r}"[:300])
        with lock:
            longest = max(longest, time.monotonic() - begun)
        time.sleep(0.005)


with pymongo.MongoClient(URL, serverSelectionTimeoutMS=20_000) as client:
    notes = client["load"]["notes"]
    notes.delete_many({})
    threads = [threading.Thread(target=write, args=(notes, number)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    print("begun", flush=True)
    sys.stdin.read()
    stop.set()
    for thread in threads:
        thread.join()
    found = {one["_id"] for one in notes.find(batch_size=500)}
    lost = sorted(acknowledged - found)
    figures = {"acknowledged": len(acknowledged), "errors": errors[:10], "error_count": len(errors)}
    print(json.dumps({**figures, "lost": lost[:10], "longest": longest}), flush=True)
