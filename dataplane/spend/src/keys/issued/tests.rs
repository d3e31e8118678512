use std::{fs, os::unix::fs::PermissionsExt as _, thread};

use serde_json::json;

use super::*;
use crate::{budget::Ledger, denial::Denial, keys::KeyRing};

fn document(value: Value) -> KeyDocument {
    let Value::Object(members) = value else { panic!("{value}") };
    KeyDocument::read(members).expect("a key")
}

fn object(value: Value) -> Map<String, Value> {
    let Value::Object(members) = value else { panic!("{value}") };
    members
}

fn plain() -> KeyDocument {
    document(json!({}))
}

fn keys(folder: &Path) -> IssuedKeys {
    IssuedKeys::open(Some(folder)).expect("a file of keys")
}

/// The name of the key that a listener finds for a text.
fn found(keys: &IssuedKeys, listener: &str, new: &NewKey, now: u64) -> Result<String, Denial> {
    let ring = KeyRing::new(&keys.joined(listener, &[]), &[], &Ledger::default()).expect("a ring");
    ring.find(new.text.expose(), now).map(|key| key.name.to_string())
}

#[test]
fn an_issued_key_is_there_for_the_next_process_and_its_text_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let policy = json!({ "policy": { "models": ["m*"], "day_tokens": 9 }, "expires": "2099-01-01T00:00:00Z" });
    let (issued, new) = keys(folder.path()).issue("ci", &document(policy.clone()), 7).expect("a key");
    let file = folder.path().join("keys.json");
    assert_eq!(fs::metadata(&file).expect("the file").permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&file).expect("the file");
    assert!(text.contains(&new.hash.to_hex()) && !text.contains(new.text.expose_str().expect("ASCII")), "{text}");
    let again = keys(folder.path());
    let all = again.all();
    let key = all.get("ci").expect("the key");
    assert_eq!((key.created, key.document()), (7, issued.document()));
    assert_eq!(key.document().policy, document(policy).policy);
    assert_eq!(found(&again, "ai", &new, 0), Ok("ci".into()));
    assert!(!folder.path().join("keys.json.new").exists());
}

#[test]
fn keys_that_no_process_could_read_again_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut keys = keys(folder.path());
    keys.file.as_mut().expect("a file").bytes_max = 1_000;
    let long = document(json!({ "policy": { "models": ["m".repeat(200)] } }));
    keys.issue("a", &long, 0).expect("it fits");
    let before = fs::read(folder.path().join("keys.json")).expect("the file");
    let refused = (0..5).map(|number| keys.issue(&format!("b{number}"), &long, 0).map(|_| ())).find(Result::is_err);
    assert!(matches!(refused, Some(Err(IssueError::TooLarge))), "{refused:?}");
    let after = fs::read(folder.path().join("keys.json")).expect("the file");
    assert!(before.len() < after.len() && after.len() <= 1_000);
    let count = keys.all().len();
    assert_eq!(self::keys(folder.path()).all().len(), count, "the file has those that the process has");
    keys.remove("a").expect("there is room for fewer");
}

#[test]
fn a_change_that_has_its_name_is_in_force_although_the_disk_has_not_confirmed_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut keys = keys(folder.path());
    let (_, new) = keys.issue("a", &plain(), 0).expect("a key");
    keys.file.as_mut().expect("a file").sync_names = |_| Err(io::ErrorKind::StorageFull.into());
    keys.patch("a", object(json!({ "enabled": false }))).expect("it is changed");
    assert_eq!(found(&keys, "ai", &new, 0), Err(Denial::DisabledKey));
    assert_eq!(found(&self::keys(folder.path()), "ai", &new, 0), Err(Denial::DisabledKey), "on the disk");
}

#[test]
fn what_another_process_has_issued_is_read_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (own, other) = (keys(folder.path()), keys(folder.path()));
    let (_, new) = other.issue("a", &plain(), 0).expect("a key");
    assert!(found(&own, "ai", &new, 0).is_err());
    own.read_again().expect("a file");
    assert_eq!(found(&own, "ai", &new, 0), Ok("a".into()));
    fs::write(folder.path().join("keys.json"), "x").expect("written");
    own.read_again().expect_err("it is no file of keys");
    assert_eq!(found(&own, "ai", &new, 0), Ok("a".into()));
}

#[test]
fn without_a_state_nothing_is_issued() {
    let keys = IssuedKeys::open(None).expect("no file");
    assert!(!keys.has_state() && matches!(keys.issue("a", &plain(), 0), Err(IssueError::NoState)));
    assert!(matches!(keys.remove("a"), Err(IssueError::NoState)));
}

#[test]
fn a_name_is_issued_once_and_is_a_part_of_a_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path());
    keys.issue("a", &plain(), 0).expect("a key");
    assert!(matches!(keys.issue("a", &plain(), 0), Err(IssueError::Exists)));
    for name in ["", ".", "..", "a/b", "a b", "a\n", &"a".repeat(65)] {
        assert!(matches!(keys.issue(name, &plain(), 0), Err(IssueError::Name)), "{name}");
    }
    assert!(matches!(keys.patch("b", Map::new()), Err(IssueError::NotFound)));
    keys.remove("a").expect("removed");
    assert!(matches!(keys.remove("a"), Err(IssueError::NotFound)));
    keys.issue("a", &plain(), 0).expect("the name is free");
}

#[test]
fn a_change_is_for_its_members_and_one_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path());
    let (_, new) = keys.issue("a", &document(json!({ "policy": { "day_tokens": 5 } })), 0).expect("a key");
    keys.patch("a", object(json!({ "enabled": false }))).expect("changed");
    assert_eq!(found(&keys, "ai", &new, 0), Err(Denial::DisabledKey));
    for patch in [json!({ "enabled": true, "policy": { "models": [] } }), json!({ "enabled": true, "name": "b" })] {
        assert!(matches!(keys.patch("a", object(patch)), Err(IssueError::Document(_))));
    }
    assert_eq!(found(&keys, "ai", &new, 0), Err(Denial::DisabledKey), "the patch was refused as a whole");
    let changed = keys.patch("a", object(json!({ "enabled": true, "listener": "ai" }))).expect("changed");
    assert_eq!(changed.settings.policy.budgets.day_tokens, Some(5));
    assert!(found(&keys, "ai", &new, 0).is_ok());
    assert_eq!(found(&keys, "other", &new, 0), Err(Denial::UnknownKey), "it is for one listener");
}

#[test]
fn a_rotation_lets_the_old_text_live_until_its_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path());
    let (_, first) = keys.issue("a", &plain(), 0).expect("a key");
    let (_, second) = keys.rotate("a", Some(100), 10).expect("rotated");
    assert!(found(&keys, "ai", &first, 99).is_ok() && found(&keys, "ai", &second, 99).is_ok());
    assert_eq!(found(&keys, "ai", &first, 100), Err(Denial::SupersededKey));
    assert!(matches!(keys.rotate("a", Some(10), 10), Err(IssueError::Past)));
    let (_, third) = keys.rotate("a", Some(50), 20).expect("rotated");
    assert_eq!(
        found(&keys, "ai", &first, 50),
        Err(Denial::SupersededKey),
        "no old text lives longer than the last order"
    );
    let (_, fourth) = keys.rotate("a", Some(90), 21).expect("rotated");
    assert!(matches!(keys.rotate("a", Some(90), 22), Err(IssueError::Texts)), "four are good");
    assert!(found(&keys, "ai", &third, 89).is_ok());
    let (key, fifth) = keys.rotate("a", Some(99), 60).expect("those whose time is over are gone");
    assert_eq!(key.settings.secrets.len(), 3);
    let (_, last) = keys.rotate("a", None, 61).expect("rotated");
    for old in [&first, &second, &third, &fourth, &fifth] {
        assert_eq!(found(&keys, "ai", old, 61), Err(Denial::UnknownKey), "all end at once");
    }
    assert!(found(&keys, "ai", &last, 61).is_ok());
}

#[test]
fn the_configuration_takes_the_place_of_an_issued_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path());
    let (issued, new) = keys.issue("a", &plain(), 0).expect("a key");
    let other = NewKey::generate().expect("randomness");
    let same_name = KeySettings { secrets: vec![secret(&other)], ..issued.settings.clone() };
    let same_hash = KeySettings { name: "b".into(), ..issued.settings };
    for configured in [same_name, same_hash] {
        let joined = keys.joined("ai", std::slice::from_ref(&configured));
        assert_eq!((joined.len(), &joined[0].name), (1, &configured.name));
        assert!(KeyRing::new(&joined, &[], &Ledger::default()).is_ok());
    }
    assert!(found(&keys, "ai", &new, 0).is_ok());
}

#[test]
fn two_operators_at_once_lose_no_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = keys(folder.path());
    let wins: usize = thread::scope(|scope| {
        let both = ["one", "other"].map(|operator| {
            let keys = &keys;
            scope.spawn(move || {
                let issue = |name: String| keys.issue(&name, &plain(), 0).is_ok();
                (0..20)
                    .map(|n| usize::from(issue(format!("{operator}-{n}"))) + usize::from(issue(format!("both-{n}"))))
                    .sum()
            })
        });
        both.into_iter().map(|one| one.join().unwrap_or(0_usize)).sum()
    });
    assert_eq!((wins, keys.all().len()), (60, 60), "each common name has one winner");
    assert_eq!(self::keys(folder.path()).all().len(), 60);
}

#[test]
fn a_file_that_is_none_is_refused_and_shows_no_hash() {
    let folder = tempfile::tempdir().expect("a folder");
    let (_, new) = keys(folder.path()).issue("a", &plain(), 0).expect("a key");
    let file = folder.path().join("keys.json");
    let whole = fs::read_to_string(&file).expect("the file");
    let hash = new.hash.to_hex();
    let broken = [
        String::new(),
        whole[..whole.len() - 1].to_owned(),
        whole.replace("\"version\":1", "\"version\":2"),
        whole.replace(&hash, &hash[1..]),
        whole.replace("\"enabled\":true", &format!("\"enabled\":\"{hash}\"")),
        whole.replace("\"policy\":{}", "\"policy\":{\"day_tokens\":0}"),
        "x".repeat(100),
    ];
    for text in broken {
        fs::write(&file, &text).expect("written");
        let error = IssuedKeys::open(Some(folder.path())).expect_err("a mistake").to_string();
        assert!(error.contains("keys.json") && !error.contains(&hash[1..]), "{error}");
    }
    fs::write(&file, &whole).expect("written");
    assert_eq!(keys(folder.path()).all().len(), 1);
}

#[test]
fn a_disk_that_refuses_leaves_the_keys_as_they_were() {
    let folder = tempfile::tempdir().expect("a folder");
    let state = folder.path().join("state");
    fs::create_dir(&state).expect("a folder");
    let keys = keys(&state);
    keys.issue("a", &plain(), 0).expect("a key");
    fs::rename(&state, folder.path().join("elsewhere")).expect("moved");
    assert!(matches!(keys.issue("b", &plain(), 0), Err(IssueError::Disk(_))));
    assert!(matches!(keys.remove("a"), Err(IssueError::Disk(_))));
    assert_eq!(keys.all().keys().map(|name| &**name).collect::<Vec<_>>(), ["a"]);
}
