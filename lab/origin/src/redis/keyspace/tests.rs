use super::{super::value::End, *};

fn text(text: &str) -> Value {
    Value::Str(text.as_bytes().to_vec())
}

#[test]
fn every_byte_is_given_back() {
    let memory = Rc::new(Memory::new(usize::MAX));
    let mut keys = Keyspace::new(memory.clone());
    let now = Time::from_nanos(10);
    keys.set(b"a", text("1"), None, now);
    keys.set(b"a", text("22"), Some(Time::from_nanos(20)), now);
    keys.set(b"b", text("3"), None, now);
    keys.change(b"l", now, Some(|| Value::List(Default::default())), |value| {
        value.list_mut().expect("a list").push(End::Left, b"x");
    });
    assert!(memory.used() > 3 * ENTRY_BYTES);
    assert!(keys.remove(b"b", now).is_some());
    keys.change(b"l", now, None, |value| value.list_mut().expect("a list").pop(End::Left));
    assert_eq!(keys.len(), 1, "an empty list is removed");
    assert!(keys.get(b"a", Time::from_nanos(20)).is_none(), "a key ends at its time");
    assert_eq!((memory.used(), keys.len()), (0, 0));
    keys.set(b"c", text("4"), None, now);
    keys.clear();
    assert_eq!((memory.used(), keys.len()), (0, 0));
}

#[test]
fn a_scan_sees_lasting_keys_exactly_once_while_others_come_and_go() {
    let mut keys = Keyspace::new(Rc::new(Memory::new(usize::MAX)));
    let now = Time::ZERO;
    for number in 0..100 {
        keys.set(format!("stays:{number}").as_bytes(), text(""), None, now);
        keys.set(format!("goes:{number}").as_bytes(), text(""), None, now);
    }
    let (mut seen, mut cursor, mut round) = (Vec::new(), 0, 0);
    loop {
        let mut page: Vec<Vec<u8>> = Vec::new();
        cursor = keys.scan(cursor, 7, now, |key, _| page.push(key.to_vec()));
        seen.extend(page.into_iter().filter(|key| key.starts_with(b"stays")));
        keys.remove(format!("goes:{round}").as_bytes(), now);
        keys.set(format!("comes:{round}").as_bytes(), text(""), None, now);
        round += 1;
        if cursor == 0 {
            break;
        }
    }
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!((count, seen.len()), (100, 100));
}

#[test]
fn a_sweep_removes_keys_that_nobody_asks_for() {
    let memory = Rc::new(Memory::new(usize::MAX));
    let mut keys = Keyspace::new(memory.clone());
    for number in 0..10 {
        keys.set(format!("{number}").as_bytes(), text(""), Some(Time::from_nanos(5)), Time::ZERO);
    }
    keys.sweep(4, Time::from_nanos(5));
    assert_eq!(keys.len(), 6);
    keys.sweep(100, Time::from_nanos(5));
    assert_eq!((keys.len(), memory.used()), (0, 0));
}

#[test]
fn the_stamp_of_a_key_changes_with_every_write_and_with_its_return() {
    let mut keys = Keyspace::new(Rc::new(Memory::new(usize::MAX)));
    let now = Time::ZERO;
    assert_eq!(keys.stamp(b"a", now), 0);
    keys.set(b"a", text("1"), None, now);
    let first = keys.stamp(b"a", now);
    keys.remove(b"a", now);
    keys.set(b"a", text("1"), None, now);
    let second = keys.stamp(b"a", now);
    assert!(first != second && second != 0);
    keys.set_expires(b"a", Time::from_nanos(9), now);
    assert_ne!(keys.stamp(b"a", now), second);
}
