//! Imported configurations: the program itself and Weir answer the same requests alike.

use weir_tests::haproxy::Haproxy;
use weir_tests::http::{HttpClient, Response};
use weir_tests::import::{Pair, origin, shares};
use weir_tests::nginx::Nginx;
use weir_tests::stream::Address;

fn nginx_config(port: u16, one: &str, two: &str) -> String {
    format!(
        r#"
    upstream app {{ server {one}; }}
    upstream api {{ server {two}; keepalive 4; }}
    upstream both {{ server {one} weight=3; server {two}; }}
    server {{
        listen 127.0.0.1:{port} default_server;
        server_name a.example *.wild.example;
        client_max_body_size 1k;
        location / {{ proxy_pass http://app; }}
        location = /exact {{ default_type text/plain; return 200 "exact"; }}
        location = /json {{ default_type application/json; return 200 "[]"; }}
        location /app {{ client_max_body_size 1m; try_files $uri @app; }}
        location @app {{
            proxy_pass http://api;
            proxy_set_header Host $http_host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Tag named;
        }}
        location /api/ {{
            proxy_pass http://api/v1/;
            proxy_set_header Host $host;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
        }}
        location /plain {{
            proxy_pass http://api;
            proxy_set_header Host fixed.example;
            proxy_set_header X-Tag "tag-$http_x_name";
            add_header X-Added yes always;
        }}
        location ^~ /first/ {{ proxy_pass http://api; }}
        location ~ \.png$ {{ proxy_pass http://app; }}
        location ~* \.(gif|png|webp)$ {{ proxy_pass http://api; }}
        location ~ ^/num/([0-9]+)$ {{ rewrite ^/num/([0-9]+)$ /n$1/x break; proxy_pass http://api; }}
        location /gone {{ return 410; }}
        location /moved {{ return 301 http://elsewhere.example$request_uri; }}
        location /found/ {{ rewrite ^/found/(.*)$ http://elsewhere.example/f/$1 redirect; }}
        location /both {{ proxy_pass http://both; }}
        location /closed {{ deny all; proxy_pass http://app; }}
        location /large {{ client_max_body_size 1m; proxy_pass http://app; }}
    }}
    server {{
        listen 127.0.0.1:{port};
        server_name b.example;
        location /only {{ proxy_pass http://api; }}
    }}
    server {{
        listen 127.0.0.1:{port};
        server_name old.example;
        return 301 https://$host$request_uri;
    }}
"#
    )
}

/// Servers that redirect before they look for a location.
fn nginx_rewrites(port: u16) -> String {
    format!(
        r#"
    server {{
        listen 127.0.0.1:{port};
        server_name first.example;
        rewrite ^/a/.*$ /one permanent;
        rewrite ^/a/much/longer/.*$ /two permanent;
        rewrite ^/moved$ /new permanent;
        location ~ \.css$ {{ proxy_pass http://app; }}
        location /a/ {{ proxy_pass http://api; }}
        location = /moved {{ return 204; }}
        location / {{ proxy_pass http://app; }}
    }}
    server {{
        listen 127.0.0.1:{port};
        server_name all.example;
        rewrite ^/known$ http://known.example/ redirect;
        rewrite ^ https://$host$request_uri? permanent;
        location /api/ {{ proxy_pass http://api; }}
    }}
"#
    )
}

#[test]
fn nginx_and_weir_with_its_configuration_respond_alike() {
    let (one, two) = (origin("one"), origin("two"));
    let servers = |port: u16| nginx_config(port, &one.address.text(), &two.address.text()) + &nginx_rewrites(port);
    let nginx = Nginx::with_config(|port, folder| {
        let frame = "daemon off; worker_processes 1; error_log stderr crit; events {}";
        let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|of| format!("{of}_temp_path {}/{of};\n", folder.display()));
        format!(
            "{frame} pid {}/pid;\nhttp {{ access_log off;\n{}{} }}",
            folder.display(),
            paths.concat(),
            servers(port)
        )
    });
    let pair = Pair::new("nginx", &nginx.address, servers);
    for path in [
        "/",
        "/x?q=1",
        "/exact",
        "/exactly",
        "/json",
        "/app",
        "/app/x?y=z",
        "/api/",
        "/api/users?id=7",
        "/api",
        "/plain",
        "/plainer",
        "/first/a.png",
        "/a.png",
        "/a.PNG",
        "/a.gif",
        "/a.png.txt",
        "/api/a.webp",
        "/num/12",
        "/num/x",
        "/gone",
        "/gone/by",
        "/moved/a?b=c",
        "/found/a/b",
        "/found",
        "/closed",
        "/a%20b",
    ] {
        for host in ["a.example", "x.wild.example", "x.y.wild.example", "unknown.example"] {
            pair.same(&format!("GET {path}"), &format!("Host: {host}\r\nX-Name: n\r\n"));
        }
    }
    for path in ["/only", "/only/x", "/", "/api/users"] {
        pair.same(&format!("GET {path}"), "Host: b.example\r\n");
        pair.same(&format!("GET {path}?a=b"), "Host: old.example\r\n");
    }
    for path in ["/", "/a/x", "/a/x.css", "/a/much/longer/x", "/b.css", "/moved", "/moved/x", "/api/x", "/known"] {
        pair.same(&format!("GET {path}"), "Host: first.example\r\n");
        pair.same(&format!("GET {path}"), "Host: all.example\r\n");
    }
    let body = |length: usize| format!("Host: a.example\r\nContent-Length: {length}\r\n");
    // A body that is refused by its length alone: none of it is sent.
    assert_eq!(pair.same("POST /x", &body(2_000)).status, 413);
    let named = pair.same("GET /app", "Host: a.example\r\n").content();
    assert!(named.contains("host=a.example") && named.ends_with("tag=named"), "{named}");
    assert_eq!(shares(&pair.theirs, "/both", 40), shares(&pair.ours.address, "/both", 40));
    let first = pair.same("GET /first/a.png", "Host: a.example\r\n");
    assert_eq!(first.field("x-origin").as_deref(), Some("two"), "the comparison is of something");
    let unknown = |note: &&str| note.contains("location") && !note.contains("`try_files ");
    let unknown: Vec<&str> = pair.imported.notes.lines().filter(unknown).collect();
    assert!(unknown.is_empty(), "every location has a counterpart: {unknown:#?}");
}

fn haproxy_config(port: u16, one: &str, two: &str) -> String {
    format!(
        r#"
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s

frontend web
    bind 127.0.0.1:{port}
    acl is_two   hdr(host) -i two.example
    acl is_wild  hdr_end(host) -i .wild.example
    acl is_css   path_end .css
    acl is_write method POST PUT
    http-request deny deny_status 429 if {{ hdr_sub(user-agent) -i scanner }}
    http-request return status 200 content-type text/plain string "pong" if {{ path /ping }}
    http-request redirect location /new code 301 if {{ path_beg /old }}
    http-request redirect prefix https://other.example code 308 if {{ path_beg /other/ }}
    http-request redirect prefix /new if {{ path_beg /front }}
    http-request redirect prefix /new if {{ path /exact }}
    http-request deny deny_status 403 if {{ src 192.0.2.0/24 }} or {{ src 198.51.100.7 }}
    http-request deny if {{ path_beg /office }} !{{ src 192.0.2.0/24 }}
    http-request set-header X-Real-IP %[src]
    http-response set-header X-Added yes
    use_backend two if is_two !{{ hdr(x-name) -m found }}
    use_backend two if {{ path_beg /two/ }} {{ method GET }}
    use_backend two if is_css or is_wild
    use_backend tagged if {{ path_beg /tag }} is_write
    use_backend nobody if {{ path /nobody }}
    use_backend gone if {{ path_beg /gone }}
    use_backend moved if {{ path_beg /moved }}
    use_backend hosted if {{ path_beg /hosted }}
    use_backend two if {{ req.hdr(host),lower,field(1,:) three.example }}
    default_backend one

backend one
    server a {one}

backend two
    balance roundrobin
    server b {two} weight 10

backend tagged
    http-request set-header X-Tag written
    http-request replace-path ^/tag/(.*)$ /t-\1
    server a {one} weight 30
    server b {two} weight 10

backend nobody

backend gone
    http-request return status 410 content-type text/plain string "gone"

backend moved
    http-request redirect scheme https code 301 if !{{ ssl_fc }}

backend hosted
    http-request set-header Host inner.example
    server a {one}
"#
    )
}

#[test]
fn haproxy_and_weir_with_its_configuration_respond_alike() {
    let (one, two) = (origin("one"), origin("two"));
    let config = |port: u16| haproxy_config(port, &one.address.text(), &two.address.text());
    let haproxy = Haproxy::start(&["-db"], |port, _| config(port));
    let pair = Pair::new("haproxy", &haproxy.address, config);
    for path in [
        "/",
        "/x?q=1",
        "/ping",
        "/pings",
        "/old",
        "/older/x",
        "/other/a/b",
        "/two/x",
        "/two",
        "/a.css",
        "/two/a.css",
        "/a.css/x",
        "/old/a.css",
        "/nobody",
        "/tag/x",
        "/front",
        "/front/x?q=1",
        "/exact",
        "/office/x",
        "/gone/x",
        "/moved/x?q=1",
        "/hosted/x",
    ] {
        for host in ["a.example", "two.example", "TWO.example", "three.example", "x.wild.example", "x.y.wild.example"] {
            pair.same(&format!("GET {path}"), &format!("Host: {host}\r\n"));
            pair.same(&format!("GET {path}"), &format!("Host: {host}\r\nX-Name: n\r\n"));
            pair.same(&format!("GET {path}"), &format!("Host: {host}\r\nUser-Agent: A Scanner/1\r\n"));
            pair.same(&format!("DELETE {path}"), &format!("Host: {host}\r\n"));
        }
    }
    let scanned = pair.same("GET /two/x", "Host: a.example\r\nUser-Agent: scanner\r\n");
    assert_eq!(scanned.status, 429, "a refusal holds for paths that other rules name too");
    let written = |address: &Address| {
        let mut client = HttpClient::connect(address);
        client.send("POST /tag/x HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        client.response().content()
    };
    let bodies = [&pair.theirs, &pair.ours.address].map(|address| {
        let mut all: Vec<String> = (0..8).map(|_| written(address)).collect();
        all.sort();
        all
    });
    assert_eq!(bodies[0], bodies[1]);
    assert!(bodies[0][0].contains("/t-x") && bodies[0][0].ends_with("tag=written"), "{:?}", bodies[0]);
    // The query of the request is kept where HAProxy drops it, and addresses are refused first.
    let [theirs, ours] = pair.both("GET /old?q=1 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n");
    let to = |response: &Response| response.field("location").unwrap_or_default();
    assert!(to(&theirs).ends_with("/new") && to(&ours).ends_with("/new?q=1"), "{} {}", to(&theirs), to(&ours));
    let known = [
        "a redirect keeps the query",
        "before all rules of the listener",
        "are refused to all",
        // A prefix in place of another, and a regex that is tried before it.
        "requests that also match `http-request redirect prefix /new if { path_beg /front }`",
        "notes: they are",
    ];
    let unknown: Vec<&str> =
        pair.imported.notes.lines().filter(|note| !known.iter().any(|known| note.contains(known))).collect();
    assert!(unknown.is_empty(), "every line has a counterpart: {unknown:#?}");
    assert_eq!(pair.imported.notes.lines().count(), known.len(), "{}", pair.imported.notes);
}
