//! Effects of the keys.

use std::time::Instant;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::{listener, sample, screen, state_of, words};
use crate::top::insight::Page;
use crate::top::state::{Flow, State};

fn press(state: &mut State, keys: &str) {
    for key in keys.chars() {
        let code = match key {
            '\t' => KeyCode::Tab,
            'v' => KeyCode::Down,
            '^' => KeyCode::Up,
            'V' => KeyCode::PageDown,
            other => KeyCode::Char(other),
        };
        assert_eq!(state.press(KeyEvent::new(code, KeyModifiers::NONE)), Flow::Continue);
    }
}

/// The names of the listeners from top to bottom.
fn order(state: &mut State) -> Vec<String> {
    let lines = screen(state, 80, 24, Instant::now());
    let names = lines.iter().filter(|line| line.starts_with("l-"));
    names.map(|line| line.split(' ').next().unwrap_or_default().to_owned()).collect()
}

/// Three listeners that every key puts into another order.
fn three(start: Instant) -> State {
    let with = |[a, b, c]: [u64; 3]| {
        let mut listeners = vec![listener("l-a", a), listener("l-b", b), listener("l-c", c)];
        for (listener, (connections, in_flight)) in listeners.iter_mut().zip([(5, 9), (9, 1), (1, 5)]) {
            listener.connections_open = connections;
            listener.requests_in_flight = in_flight;
        }
        listeners[1].request_seconds.p99 = Some(9.0);
        listeners[2].shed_total.insert("in_flight".to_owned(), c);
        listeners
    };
    state_of([sample(start, 0.0, with([0, 0, 0])), sample(start, 1.0, with([10, 20, 30]))])
}

#[test]
fn each_sort_key_orders_and_pressed_again_turns_the_order_round() {
    let mut state = three(Instant::now());
    assert_eq!(order(&mut state), ["l-c", "l-b", "l-a"], "by requests at first");
    for (key, expected) in [
        ("n", ["l-a", "l-b", "l-c"]),
        ("c", ["l-b", "l-a", "l-c"]),
        ("i", ["l-a", "l-c", "l-b"]),
        ("t", ["l-b", "l-a", "l-c"]),
        ("s", ["l-c", "l-a", "l-b"]),
        ("r", ["l-c", "l-b", "l-a"]),
    ] {
        press(&mut state, key);
        assert_eq!(order(&mut state), expected, "{key}");
        press(&mut state, key);
        let mut reversed = expected;
        reversed.reverse();
        assert_eq!(order(&mut state), reversed, "{key} twice");
    }
}

#[test]
fn the_help_line_names_the_order() {
    let mut state = three(Instant::now());
    press(&mut state, "cc");
    let lines = screen(&mut state, 80, 24, Instant::now());
    assert!(lines[23].contains("sort n/c/r/t/i/s: conns reversed"), "{}", lines[23]);
}

#[test]
fn pause_holds_the_frame_and_says_so() {
    let start = Instant::now();
    let mut state = three(start);
    press(&mut state, "p");
    let before = order(&mut state);
    state.accept(Ok(sample(start, 2.0, vec![listener("l-z", 1)])));
    assert_eq!(order(&mut state), before);
    assert!(screen(&mut state, 80, 24, start)[0].contains("PAUSED"));
    press(&mut state, "p");
    state.accept(Ok(sample(start, 3.0, vec![listener("l-z", 1)])));
    assert_eq!(order(&mut state), ["l-z"]);
    assert!(!screen(&mut state, 80, 24, start)[0].contains("PAUSED"));
}

#[test]
fn arrows_scroll_the_focused_table_and_stop_at_its_end() {
    let start = Instant::now();
    let many = (0..50).map(|index| listener(&format!("l-{index:02}"), 1)).collect();
    let mut state = state_of([sample(start, 0.0, many)]);
    press(&mut state, "n");
    assert_eq!(order(&mut state)[0], "l-00");
    press(&mut state, "vvv");
    assert_eq!(order(&mut state)[0], "l-03");
    press(&mut state, "^");
    assert_eq!(order(&mut state)[0], "l-02");
    press(&mut state, "VVVVVVVVVV");
    assert_eq!(order(&mut state).last().map(String::as_str), Some("l-49"));
    // Presses past the end need no presses back.
    let first = order(&mut state)[0].clone();
    press(&mut state, "^");
    assert_ne!(order(&mut state)[0], first);
    // Another table has the focus: the listeners stay.
    let first = order(&mut state)[0].clone();
    press(&mut state, "\t^^");
    assert_eq!(order(&mut state)[0], first);
    let lines = screen(&mut state, 80, 24, start);
    assert!(words(&lines, "…").join(" ").ends_with("below"));
}

#[test]
fn q_escape_and_control_c_quit_and_c_alone_does_not() {
    let mut state = State::new("http://127.0.0.1:9900");
    for code in [KeyCode::Char('q'), KeyCode::Esc] {
        assert_eq!(state.press(KeyEvent::new(code, KeyModifiers::NONE)), Flow::Quit);
    }
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(state.press(interrupt), Flow::Quit);
    assert_eq!(state.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::NONE)), Flow::Continue);
}

#[test]
fn the_keys_of_pages_show_them_and_the_same_again_leads_back() {
    let mut state = three(Instant::now());
    for (key, page) in [("h", Page::HotKeys), ("b", Page::BigKeys), ("l", Page::SlowLog)] {
        press(&mut state, key);
        assert_eq!(state.page, page);
        let lines = screen(&mut state, 80, 24, Instant::now());
        assert!(lines[23].contains("o overview") && order(&mut state).is_empty(), "{lines:#?}");
    }
    press(&mut state, "l");
    assert_eq!((state.page, order(&mut state).len()), (Page::Overview, 3));
    press(&mut state, "ho");
    assert_eq!(state.page, Page::Overview);
}
