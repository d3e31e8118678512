//! Replies of real servers, byte for byte. The files are refreshed by `cargo xtask generate redis-commands`.

use weir_analysis::redis::{KeyFlags, Keys, Resolved, check_arity, keys, resolve, text};

/// One request of a golden file, and per server its reply in `escape_ascii` form: `"k"…` or `-"ERR …"`.
struct Case {
    line: String,
    args: Vec<Vec<u8>>,
    replies: Vec<(String, String)>,
}

fn cases(file: &str) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in file.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix("> ") {
            Some(request) => {
                cases.push(Case { line: request.to_owned(), args: words(request), replies: Vec::new() });
            }
            None => {
                let (server, reply) = line.split_once(' ').expect("server and reply");
                let case = cases.last_mut().expect("a request stands first");
                case.replies.push((server.to_owned(), reply.to_owned()));
            }
        }
    }
    assert!(cases.iter().all(|case| case.replies.len() >= 2), "every request has the replies of two servers");
    cases
}

/// Words as the generator reads them: blank-separated, or `"…"` with escapes, or `"…"*N`.
fn words(line: &str) -> Vec<Vec<u8>> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut bytes = line.bytes().peekable();
    while let Some(byte) = bytes.next() {
        let mut word = Vec::new();
        if byte == b' ' {
            continue;
        } else if byte != b'"' {
            word.push(byte);
            word.extend(std::iter::from_fn(|| bytes.next_if(|&byte| byte != b' ')));
            words.push(word);
            continue;
        }
        loop {
            match bytes.next().expect("closing quote") {
                b'"' => break,
                b'\\' => word.push(match bytes.next().expect("escape") {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b'x' => {
                        let mut digit = || char::from(bytes.next().expect("digit")).to_digit(16).expect("hex") as u8;
                        digit() << 4 | digit()
                    }
                    other => other,
                }),
                other => word.push(other),
            }
        }
        if bytes.next_if_eq(&b'*').is_some() {
            let count: String = std::iter::from_fn(|| bytes.next_if(u8::is_ascii_digit)).map(char::from).collect();
            word = word.repeat(count.parse().expect("a count"));
        }
        words.push(word);
    }
    words
}

fn printed_error(text: &[u8]) -> String {
    format!("-\"{}\"", text.escape_ascii())
}

#[test]
fn unknown_names_and_wrong_arity_are_answered_as_the_servers_do() {
    let cases = cases(include_str!("golden/errors.txt"));
    for case in &cases {
        let mut out = Vec::new();
        match resolve(&case.args[0], case.args.get(1).map(Vec::as_slice)) {
            Resolved::Unknown => text::unknown_command(&mut out, &case.args),
            Resolved::UnknownSubcommand(container) => text::unknown_subcommand(&mut out, container, &case.args[1]),
            Resolved::Known(command) if check_arity(command, case.args.len()) => {
                panic!("{} would run", case.line)
            }
            Resolved::Known(command) => text::wrong_arity(&mut out, command),
        }
        for (server, reply) in &case.replies {
            assert_eq!(printed_error(&out), *reply, "{} on {server}", case.line);
        }
    }
    assert!(cases.len() >= 80);
}

/// Requests for which COMMAND GETKEYS of the servers differs from their execution.
const GETKEYS_IS_WRONG: &[&str] = &[
    // The key spec takes the first STREAMS behind argument 4; XREADGROUP itself takes it as the group's name.
    "COMMAND GETKEYS XREADGROUP COUNT 1 GROUP STREAMS c STREAMS a >",
    // XREAD refuses all three; the spec names a key.
    "COMMAND GETKEYS XREAD COUNT STREAMS STREAMS a 0",
    "COMMAND GETKEYS XREAD STREAMS a b 0",
    "COMMAND GETKEYS XREAD FOO STREAMS a 0",
];

#[test]
fn keys_are_those_of_command_getkeys() {
    let cases = cases(include_str!("golden/getkeys.txt"));
    let mut compared = 0;
    for case in cases.iter().filter(|case| !GETKEYS_IS_WRONG.contains(&case.line.as_str())) {
        let args = &case.args[2..];
        let Resolved::Known(command) = resolve(&args[0], args.get(1).map(Vec::as_slice)) else {
            panic!("{} is unknown", case.line)
        };
        let mut out = Keys::new();
        let found = match keys(command, args, &mut out) {
            Ok(()) => out
                .iter()
                .filter(|key| !key.flags.contains(KeyFlags::NOT_KEY))
                .map(|key| format!("\"{}\"", args[key.index].escape_ascii()))
                .collect::<Vec<_>>()
                .join(" "),
            Err(_) => String::new(),
        };
        for (server, reply) in case.replies.iter().filter(|(server, _)| command.known_to().any(|known| known == server))
        {
            let expected = if reply.starts_with('-') { "" } else { reply };
            assert_eq!(found, expected, "{} on {server}", case.line);
            compared += 1;
        }
    }
    assert!(compared >= 240, "{compared} replies compared");
}

#[test]
fn r18_bad_counts_get_the_words_of_the_server() {
    // Older wording of the same error; the newer one is written.
    let older = |reply: &str| reply.contains("Unbalanced XREAD list");
    let mut compared = 0;
    for case in cases(include_str!("golden/key_counts.txt")) {
        let Resolved::Known(command) = resolve(&case.args[0], case.args.get(1).map(Vec::as_slice)) else {
            panic!("{} is unknown", case.line)
        };
        if !check_arity(command, case.args.len()) || command.base_name() == "function" {
            continue;
        }
        let mut out = Vec::new();
        let error = keys(command, &case.args, &mut Keys::new()).expect_err(&case.line);
        text::invalid_keys(&mut out, command, error);
        for (server, reply) in case.replies.iter().filter(|(server, _)| command.known_to().any(|known| known == server))
        {
            if older(reply) {
                continue;
            }
            assert_eq!(printed_error(&out), *reply, "{} on {server}", case.line);
            compared += 1;
        }
    }
    assert!(compared >= 100, "{compared} replies compared");
}
