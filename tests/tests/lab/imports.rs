//! Imported configurations of twemproxy and Envoy: the program itself and Weir respond to the same requests alike, and find the same
//! keys.

use weir_tests::client::Client;
use weir_tests::deadline::{WAIT, until, until_true};
use weir_tests::envoy::Envoy;
use weir_tests::faulty::Faulty;
use weir_tests::gateway::Gateway;
use weir_tests::import::{Pair, import, origin, shares};
use weir_tests::port;
use weir_tests::process::Process;
use weir_tests::server::{Kind, Server};
use weir_tests::stream::{Address, Stream};

const KEYS: usize = 300;

fn twemproxy_config(port: u16, servers: &[Server]) -> String {
    let list: String = servers.iter().map(|server| format!("   - {}:1\n", server.address.text())).collect();
    format!(
        "cache:\n  listen: 127.0.0.1:{port}\n  redis: true\n  hash: fnv1a_64\n  hash_tag: \"{{}}\"\n  distribution: ketama\n  \
         timeout: 5000\n  backlog: 512\n  servers:\n{list}"
    )
}

/// Requests of Redis get the same replies at both addresses, and keys that one has written are found by the other.
fn assert_alike(theirs: &Address, ours: &Address, servers: &[Server]) {
    let (mut old, mut new) = (Client::connect(theirs), Client::connect(ours));
    // Written through one and read through the other, both ways: each key is on the server that the other looks at.
    for n in 0..KEYS {
        let (first, second) = (format!("a:{n}"), format!("{{tag{}}}:{n}", n % 7));
        old.expect(&["SET", &first, &n.to_string()], b"+OK\r\n");
        new.expect(&["SET", &second, &n.to_string()], b"+OK\r\n");
        let value = format!("${}\r\n{n}\r\n", n.to_string().len());
        new.expect(&["GET", &first], value.as_bytes());
        old.expect(&["GET", &second], value.as_bytes());
    }
    let requests: [&[&str]; 12] = [
        &["PING"],
        &["GET", "none"],
        &["MGET", "a:1", "a:2", "none", "a:3"],
        &["INCR", "{c}:n"],
        &["HSET", "{c}:h", "f", "v"],
        &["HGETALL", "{c}:h"],
        &["HGET", "a:1", "f"],
        &["LPUSH", "{c}:l", "x", "y"],
        &["LRANGE", "{c}:l", "0", "-1"],
        &["EXPIRE", "{c}:l", "100"],
        &["TYPE", "{c}:l"],
        &["DEL", "{c}:n", "{c}:h", "{c}:l", "none"],
    ];
    let replies = |client: &mut Client| requests.map(|words| String::from_utf8_lossy(&client.call(words)).into_owned());
    assert_eq!(replies(&mut old), replies(&mut new));
    let sizes: Vec<Vec<u8>> = servers.iter().map(|server| server.connect().call(&["DBSIZE"])).collect();
    // These keys are alike, and ketama may leave one server out.
    let used = sizes.iter().filter(|size| *size != b":0\r\n").count();
    assert!(used >= 2, "keys are spread: {sizes:?}");
}

#[test]
fn twemproxy_and_weir_with_its_configuration_respond_alike() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start(Kind::Redis)).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let (theirs, admin) = (port::free(), port::free().to_string());
    let file = folder.path().join("nutcracker.yml");
    std::fs::write(&file, twemproxy_config(theirs, &servers)).expect("written");
    let words = ["nutcracker", "-s", &admin, "-a", "127.0.0.1", "-c", &file.to_string_lossy()].map(str::to_owned);
    let mut nutcracker = Process::start("nutcracker", &words, &folder.path().join("log"), &[]);
    let theirs = Address::port(theirs);
    until("nutcracker to listen".to_owned(), WAIT, || Stream::connect(&theirs).ok());
    let port = port::free();
    let imported = import("twemproxy", &twemproxy_config(port, &servers));
    assert_eq!(imported.notes, "", "every key has a counterpart");
    let gateway = Gateway::with_text(&imported.toml, Address::port(port));
    assert_alike(&theirs, &gateway.address, &servers);
    nutcracker.kill();
}

/// In the style of Envoy's documentation. `$PORT`, `$ONE`, `$TWO` and `$NOWHERE` are ports: of the listener, of the origins, and one
/// without a listener.
const ENVOY: &str = include_str!("envoy.yaml");

fn envoy_config(port: u16, origins: &[&Faulty; 2], nowhere: u16) -> String {
    let [one, two] = origins.map(|origin| origin.address.tcp().port());
    let ports = [("$PORT", port), ("$ONE", one), ("$TWO", two), ("$NOWHERE", nowhere)];
    ports.iter().fold(ENVOY.to_owned(), |text, (name, port)| text.replace(name, &port.to_string()))
}

/// Requests for every route of the virtual host `shop`, at its hosts and at others.
fn shop_requests() -> Vec<(String, String)> {
    const PATHS: [&str; 52] = [
        "/",
        "/x?q=1",
        "/healthz",
        "/healthz/x",
        "/page",
        "/gone",
        "/gone/by",
        "/old",
        "/older/x?q=1",
        "/old/a/b",
        "/left",
        "/left/x?q=1",
        "/lefty",
        "/moved",
        "/moved?q=1",
        "/moved/x",
        "/secure/x?q=1",
        "/port/x",
        "/other/a?b=c",
        "/v1/old",
        "/v12/old?q=1",
        "/v/old",
        "/api/",
        "/api/users?id=7",
        "/api/users?beta=yes",
        "/api/users?beta=no",
        "/api",
        "/cart",
        "/cart/x?y=z",
        "/carts",
        "/item/12",
        "/item/12/x",
        "/item/x",
        "/img/a.png",
        "/img/a/b.gif?q=1",
        "/img/a.txt",
        "/img/",
        "/fixed",
        "/fixed?q=1",
        "/fixed/x",
        "/dash-a-b-c",
        "/tag",
        "/tag/x",
        "/scheme/x?q=1",
        "/forged",
        "/forged/x",
        "/copied",
        "/emptied",
        "/replaced",
        "/all/x",
        "/host/x",
        "/a%20b",
    ];
    const FIELDS: [&str; 6] = [
        "X-Name: n\r\n",
        "X-Name: n\r\nX-Version: 2\r\nX-Tag: own\r\nX-Secret: s\r\n",
        "X-Name: n\r\nX-Host: inner.example\r\nX-Version: 3\r\n",
        // A client may not say these of itself.
        "X-Name: n\r\nX-Real-IP: 192.0.2.1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Client-Cert: Hash=1\r\n",
        "X-Name: n\r\nX-Forwarded-For: 192.0.2.1, 192.0.2.2\r\nX-Version: 2\r\n",
        "X-Name: n\r\nX-Envoy-Internal: true\r\nX-Envoy-External-Address: 192.0.2.9\r\nX-Envoy-Retry-On: 5xx\r\n\
         X-Envoy-Decorator-Operation: a\r\n",
    ];
    let mut requests = Vec::new();
    for path in PATHS {
        for fields in FIELDS {
            requests.push((format!("GET {path}"), format!("Host: a.example\r\n{fields}")));
        }
        let body = "Content-Length: 0\r\nX-Name: n\r\n";
        requests.push((format!("POST {path}"), format!("Host: a.example\r\n{body}X-Version: 2\r\n")));
        requests.push((format!("POST {path}"), format!("Host: a.example\r\n{body}")));
        for host in ["x.wild.example", "x.y.WILD.example", "x.deep.wild.example", "wild.example", "unknown.example"] {
            requests.push((format!("GET {path}"), format!("Host: {host}\r\nX-Name: n\r\n")));
        }
        // The Location of this one differs in its port.
        if !path.starts_with("/secure") {
            requests.push((format!("GET {path}"), "Host: a.example:8080\r\nX-Name: n\r\n".to_owned()));
        }
    }
    requests
}

/// Replaced headers, and requests for the other virtual hosts: conditions on headers and on the query, the order of routes, hosts with
/// a port, and a redirect to HTTPS.
fn further_requests() -> Vec<(String, String)> {
    let mut requests = Vec::new();
    let mut push = |path: &str, fields: &str| requests.push((format!("GET {path}"), fields.to_owned()));
    for kind in ["exact", "prefix", "suffix", "contains", "regex", "present", "not", "case", "both"] {
        for value in ["", "X-Name: \r\n", "X-Name: n\r\n", "X-Name: N\r\n", "X-Name: nn\r\n", "X-Name: nx\r\n"] {
            push(&format!("/header/{kind}"), &format!("Host: conditions.example\r\n{value}"));
            push(&format!("/header/{kind}?env=test"), &format!("Host: conditions.example\r\n{value}"));
        }
    }
    for kind in ["exact", "prefix", "regex", "present"] {
        for query in ["", "?env=test", "?env=tested", "?env=", "?env", "?ENV=test", "?other=test", "?a=b&env=test"] {
            push(&format!("/query/{kind}{query}"), "Host: conditions.example\r\n");
        }
        push(&format!("/query/{kind}?env=x&env=test"), "Host: conditions.example\r\n");
    }
    for path in ["/wide", "/wide/narrow", "/wide/a.css", "/a.css", "/a/page", "/page", "/late", "/later/x", "/x"] {
        push(path, "Host: order.example\r\n");
        push(path, "Host: order.example\r\nX-Name: n\r\n");
    }
    for path in ["/only", "/only/x", "/", "/healthz"] {
        push(path, "Host: b.example\r\n");
    }
    for (path, fields) in [
        ("/stamp", "X-Name: n\r\n"),
        ("/stamp", "X-Name: n\r\nX-Tag: own\r\n"),
        ("/copy", ""),
        ("/copy", "X-Tag: own\r\n"),
        ("/copy", "X-Name: n\r\nX-Tag: own\r\n"),
        ("/kept", ""),
    ] {
        push(path, &format!("Host: a.example\r\n{fields}"));
    }
    for path in ["/", "/x?q=1"] {
        push(path, "Host: port.example:8080\r\n");
        push(path, "Host: tls.example\r\n");
        push(path, "Host: tls.example\r\nX-Forwarded-Proto: https\r\n");
    }
    requests
}

#[test]
fn envoy_and_weir_with_its_configuration_respond_alike() {
    let origins = [&origin("one"), &origin("two")];
    let nowhere = port::free();
    let config = |port: u16| envoy_config(port, &origins, nowhere);
    let envoy = Envoy::start(config);
    let pair = Pair::new("envoy", &envoy.address, config);
    let requests = [shop_requests(), further_requests()].concat();
    let differences: Vec<String> = requests.iter().filter_map(|(line, fields)| pair.compared(line, fields).1).collect();
    let (count, all) = (differences.len(), requests.len());
    assert!(count == 0, "{count} of {all} differ:\n{}\n{}", differences.join("\n"), pair.imported.toml);
    assert!(all > 800, "{all} requests");
    let tagged = pair.same("GET /tag", "Host: a.example\r\nX-Name: n\r\nX-Tag: own\r\nX-Secret: s\r\n");
    let text = tagged.content();
    assert!(text.contains("client=127.0.0.1 ") && text.ends_with("secret= tag=own, tagged-n"), "{text}");
    // No client counts as internal.
    assert!(text.contains(" id=made envoy=/127.0.0.1// "), "{text}");
    assert_eq!(tagged.field("x-added").as_deref(), Some("HTTP/1.1"));
    let known = [
        "`retry_policy`: requests that a server may have processed",
        // The replacement of a prefix by a redirect, in front of two regexes.
        ": requests that also match `match prefix: /late` in line",
        "notes: they are",
        "`https_redirect`: the Location has no port",
        "`use_remote_address`: requests without X-Forwarded-Host",
        "`generate_request_id`: a client's own X-Request-ID is kept",
        "`x-tag: kept`: OVERWRITE_IF_EXISTS depends on the value",
        "`domains: port.example:8080`: hosts have no port here",
        "`require_tls: ALL`: the Location has no port",
    ];
    let unknown: Vec<&str> =
        pair.imported.notes.lines().filter(|note| !known.iter().any(|known| note.contains(known))).collect();
    assert!(unknown.is_empty(), "every line has a counterpart: {unknown:#?}");
    assert_shares_and_failures(&pair, &origins);
    assert_permitted(&pair);
}

/// Shares of weighted clusters, timeouts and retries.
fn assert_shares_and_failures(pair: &Pair, origins: &[&Faulty; 2]) {
    // Envoy draws lots: of 400 requests, 300 go to the first cluster, with a standard deviation of 9.
    for address in [&pair.theirs, &pair.ours.address] {
        let [one, two] = shares(address, "/both", 400);
        assert!((240..=360).contains(&one), "{one} and {two} at {}", address.text());
    }
    let host = "Host: a.example\r\n";
    let counted = |path: &str| {
        let seen = |line: &[u8]| String::from_utf8_lossy(line).starts_with(&format!("GET {path} "));
        origins.iter().flat_map(|origin| origin.seen()).filter(|request| seen(&request[0])).count()
    };
    for (path, status, attempts) in [
        ("/silent", 504, 1),
        ("/silent/once", 504, 1),
        ("/silent/tried", 504, 2),
        ("/unavailable", 503, 3),
        ("/unavailable/once", 503, 1),
    ] {
        assert_eq!(pair.same(&format!("GET {path}"), host).status, status, "{path}");
        // A program can give up before a slow origin has read its request.
        until_true(format!("{attempts} attempts of both programs for {path}"), || counted(path) >= 2 * attempts);
        assert_eq!(counted(path), 2 * attempts, "attempts of both programs for {path}");
    }
}

/// The differences that docs/guide/migration.md lists.
fn assert_permitted(pair: &Pair) {
    let both = |line: &str, host: &str| {
        let responses = pair.both(&format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        responses.map(|response| (response.status, response.content()))
    };
    let path = |(status, text): &(u16, String)| (*status, text.split(' ').nth(2).unwrap_or_default().to_owned());
    // Envoy compares hosts with their port.
    let [theirs, ours] = both("GET /only", "b.example:8080");
    assert_eq!((theirs.0, ours.0), (404, 200));
    // Envoy leaves paths as they are unless its file says otherwise.
    for (line, own) in [("/a//b", "/a/b"), ("/a/../b", "/b"), ("/%61", "/a")] {
        let [theirs, ours] = both(&format!("GET {line}"), "a.example");
        assert_eq!((path(&theirs), path(&ours)), ((200, line.to_owned()), (200, own.to_owned())));
    }
    let [theirs, ours] = both("GET /a%2Fb", "a.example");
    assert_eq!((theirs.0, ours.0), (200, 400));
    // Envoy compares the query as it came.
    let [theirs, ours] = both("GET /query/exact?env=te%73t", "conditions.example");
    assert!(theirs.1.starts_with("one ") && ours.1.starts_with("two "), "{} {}", theirs.1, ours.1);
    // Envoy compares each line of a header, and Weir compares all of them as one value.
    let two_lines = "Host: conditions.example\r\nX-Name: n\r\nX-Name: m\r\nConnection: close\r\n\r\n";
    let [theirs, ours] = pair.both(&format!("GET /header/exact HTTP/1.1\r\n{two_lines}"));
    assert!(theirs.content().starts_with("two ") && ours.content().starts_with("one "), "{}", ours.content());
    // A note says of this regex that it is tried before the prefix of a redirect.
    let [theirs, ours] = both("GET /late/a.css", "order.example");
    assert_eq!((theirs.0, ours.0), (301, 200));
    // The request has no X-Name, which the value of X-Tag names.
    let [theirs, ours] = both("GET /tag", "a.example");
    assert!(theirs.1.ends_with(" tag=tagged-") && ours.1.ends_with(" tag="), "{} {}", theirs.1, ours.1);
    // The client's own does not stand in place of the value, which the request does not complete or Weir does not know.
    for (path, of_envoy, own) in [("/stamp", " tag=id-, more", " tag=more"), ("/kept", " tag=kept", " tag=")] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: a.example\r\nX-Tag: own\r\nConnection: close\r\n\r\n");
        let [theirs, ours] = pair.both(&request).map(|response| response.content());
        assert!(theirs.ends_with(of_envoy) && ours.ends_with(own), "{theirs} {ours}");
    }
    // A note says that this host has no port.
    let [theirs, ours] = both("GET /", "port.example");
    assert_eq!((theirs.0, ours.0), (404, 200));
    // Nothing listens there.
    let [theirs, ours] = both("GET /nowhere", "a.example");
    assert_eq!((theirs.0, ours.0), (503, 502));
    // A note says of these redirects that they leave out the port.
    for host in ["a.example", "tls.example"] {
        let secure = format!("GET /secure HTTP/1.1\r\nHost: {host}:8080\r\nConnection: close\r\n\r\n");
        let locations = pair.both(&secure).map(|response| response.field("location").unwrap_or_default());
        assert_eq!(locations, [format!("https://{host}:8080/secure"), format!("https://{host}/secure")]);
    }
    // A note says of ids that a client keeps its own.
    let own_id = "GET / HTTP/1.1\r\nHost: a.example\r\nX-Request-ID: own\r\nConnection: close\r\n\r\n";
    let [theirs, ours] = pair.both(own_id).map(|response| response.content());
    assert!(theirs.contains(" id=made ") && ours.contains(" id=own "), "{theirs} {ours}");
}

/// A listener of `redis_proxy` in front of shards.
fn envoy_redis(port: u16, servers: &[Server]) -> String {
    let endpoint = |server: &Server| {
        let port = server.address.tcp().port();
        format!(
            "        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }}\n"
        )
    };
    let endpoints: String = servers.iter().map(endpoint).collect();
    format!(
        r#"static_resources:
  listeners:
  - name: cache
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.redis_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
          stat_prefix: cache
          settings: {{ op_timeout: 5s, enable_hashtagging: true }}
          prefix_routes: {{ catch_all_route: {{ cluster: shards }} }}
  clusters:
  - name: shards
    type: STATIC
    lb_policy: MAGLEV
    load_assignment:
      cluster_name: shards
      endpoints:
      - lb_endpoints:
{endpoints}"#
    )
}

#[test]
fn shards_of_envoy_and_of_weir_with_its_configuration_have_the_same_keys() {
    let servers: Vec<Server> = (0..3).map(|_| Server::start(Kind::Redis)).collect();
    let envoy = Envoy::start(|port| envoy_redis(port, &servers));
    let pair = Pair::new("envoy", &envoy.address, |port| envoy_redis(port, &servers));
    assert_eq!(pair.imported.notes, "", "every key has a counterpart");
    assert_alike(&pair.theirs, &pair.ours.address, &servers);
}

/// A listener of `tcp_proxy`.
fn envoy_tcp(port: u16, origin: &Faulty) -> String {
    format!(
        r#"static_resources:
  listeners:
  - name: pipe
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: pipe
          cluster: one
          idle_timeout: 600s
  clusters:
  - name: one
    type: STATIC
    load_assignment:
      cluster_name: one
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {} }} }} }}
"#,
        origin.address.tcp().port()
    )
}

#[test]
fn bytes_pass_through_envoy_and_through_weir_with_its_configuration_alike() {
    let origin = origin("one");
    let envoy = Envoy::start(|port| envoy_tcp(port, &origin));
    let pair = Pair::new("envoy", &envoy.address, |port| envoy_tcp(port, &origin));
    assert_eq!(pair.imported.notes, "", "every key has a counterpart");
    for path in ["/", "/a//b", "/x?q=1"] {
        let response = pair.same(&format!("GET {path}"), "Host: a.example\r\nX-Tag: own\r\n");
        assert!(response.content().starts_with(&format!("one GET {path} host=a.example ")), "{}", response.content());
    }
}
