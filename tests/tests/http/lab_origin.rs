//! The lab's origin, without a gateway, as clients see it that know nothing of the lab: what is measured in front of it is only
//! worth something if it speaks what others speak.

use std::process::Command;

use weir_tests::lab_origin::LabOrigin;

use super::websocket_clients::Library;

/// Standard output of a program that succeeds.
fn output_of(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {words:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_h2load_and_websocket_libraries_understand_the_origin_of_the_lab() {
    let origin = LabOrigin::start();
    for (version, words) in [("1.1", "--http1.1"), ("2", "--http2-prior-knowledge")] {
        let get = |path: &str| {
            output_of("curl", &["-sS", words, "-w", " %{http_version} %{http_code}", &origin.url("http", path)])
        };
        assert_eq!(get("/12/word"), format!("wordxxxxxxxx {version} 200"));
        assert_eq!(get("/nothing"), format!(" {version} 404"));
        let large = get("/1048576");
        assert!(large.ends_with(&format!("x {version} 200")) && large.len() > 1 << 20, "{}", large.len());
        let posted = ["-sS", words, "--data-binary", "@/proc/self/exe", &origin.url("http", "/3")];
        assert_eq!(output_of("curl", &posted), "xxx", "a body of some megabytes is read and dropped");
    }
    let url = origin.url("http", "/1024");
    let load = output_of("h2load", &["-n", "4000", "-c", "4", "-m", "25", &url]);
    assert!(load.contains("4000 succeeded, 0 failed, 0 errored, 0 timeout") && load.contains("4000 2xx"), "{load}");
    for client in [Library::Ws, Library::Websockets] {
        let output = client.command(&["client", &origin.url("ws", "/"), "plain"]).output().expect("runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && output.stdout == b"ok\n", "{client:?}: {errors}");
    }
}
