//! A result of the lab, as far as the configuration reads it.

use serde_json::{Value as Json, json};

/// 200 requests per second on two workers.
pub fn knee(change: impl FnOnce(&mut Json)) -> String {
    let mut result = json!({
        "schema": "weir.lab.result/1",
        "run_id": "r1",
        "ended": 1_795_310_822,
        "shape": { "row": "cache: GET x 1, real back end", "budget_vcpu": 2.0, "tls": "off", "telemetry": "on" },
        "scenario": "name = \"cache\"\nprotocol = \"redis\"\n",
        "host": { "kernel": null, "cpu_model": null },
        "knee": { "outcome": "verified", "clean": { "rate": 200.0 } },
    });
    change(&mut result);
    result.to_string()
}
