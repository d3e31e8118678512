//! States from documents and events, and what their clients get.

use serde_json::{Value, json};
use weir_flags_codec::DeltaEvent;
use weir_flags_session::delta::{Follower, StreamEvent};
use weir_flags_session::{FlagState, History, Projects, Refused, Snapshot};

use crate::support::{document, with};

/// A gateway's environment.
struct Environment {
    state: FlagState,
    history: History,
}

impl Environment {
    fn new() -> Self {
        Self { state: FlagState::new(100), history: History::default() }
    }

    fn poll(&mut self, projects: &[&str], value: Value) -> Result<usize, Refused> {
        let events = self.state.apply_document(&Projects::new(projects), document(&value))?;
        Ok(self.record(events))
    }

    fn push(&mut self, events: Value) -> Result<usize, Refused> {
        let events = DeltaEvent::read_all(json!({"events": events}).to_string().as_bytes()).expect("events");
        let events = self.state.apply_events(&Projects::All, events, true)?;
        Ok(self.record(events))
    }

    fn record(&mut self, events: Vec<DeltaEvent>) -> usize {
        let count = events.len();
        self.history.record(self.state.revision(), events);
        count
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot::new(&self.state, self.history.clone(), None)
    }

    /// Types and names of the events for a client, in short.
    fn delta(&self, projects: &[&str], prefix: &str, client: Option<u64>) -> Option<Vec<String>> {
        let (snapshot, projects) = (self.snapshot(), Projects::new(projects));
        let follower = Follower { projects: &projects, scope: &snapshot.scope(&projects), name_prefix: prefix };
        let mut out = b"x".to_vec();
        if !snapshot.delta(&follower, client, &mut out) {
            assert_eq!(out, b"x");
            return None;
        }
        let document: Value = serde_json::from_slice(&out[1..]).expect("JSON");
        let events = document["events"].as_array().expect("events");
        assert!(events.iter().all(|event| event["eventId"].as_u64() <= Some(snapshot.revision())));
        Some(events.iter().map(short).collect())
    }

    fn names(&self) -> Vec<String> {
        self.state.features().map(|feature| feature.name.to_string()).collect()
    }
}

fn short(event: &Value) -> String {
    let names = |value: &Value| {
        let names: Vec<&str> = value.as_array().into_iter().flatten().filter_map(|it| it["name"].as_str()).collect();
        names.join(",")
    };
    match event["type"].as_str().expect("a type") {
        "hydration" => format!("all {}", names(&event["features"])),
        "feature-updated" => format!("+{}", event["feature"]["name"].as_str().expect("a name")),
        "feature-removed" => {
            format!(
                "-{} of {}",
                event["featureName"].as_str().expect("a name"),
                event["project"].as_str().expect("a project")
            )
        }
        "segment-updated" => format!("+#{}", event["segment"]["id"]),
        "segment-removed" => format!("-#{}", event["segmentId"]),
        other => panic!("{other}"),
    }
}

fn features(names: &[(&str, &str)]) -> Value {
    let features: Vec<Value> = names.iter().map(|(name, project)| with(json!({"project": project}), name)).collect();
    json!({"version": 2, "features": features})
}

#[test]
fn clients_follow_a_gateway_that_polls() {
    let mut environment = Environment::new();
    environment.poll(&["*"], features(&[("a", "p"), ("b", "q")])).expect("taken");
    assert_eq!(environment.state.revision(), 100, "the gateway's own");
    for client in [None, Some(0), Some(99), Some(101)] {
        assert_eq!(environment.delta(&["*"], "", client).expect("news"), ["all a,b"], "{client:?}");
    }
    assert_eq!(environment.delta(&["*"], "", Some(100)), None);
    assert_eq!(environment.delta(&["p"], "", None).expect("news"), ["all a"]);
    assert_eq!(environment.poll(&["*"], features(&[("a", "p"), ("b", "q")])), Ok(0), "nothing new");
    let mut changed = features(&[("b", "p"), ("c", "q")]);
    changed["segments"] = json!([{"id": 4, "constraints": []}]);
    environment.poll(&["*"], changed).expect("taken");
    assert_eq!(environment.state.revision(), 101);
    assert_eq!(environment.delta(&["*"], "", Some(100)).expect("news"), ["+#4", "-a of p", "-b of q", "+b", "+c"]);
    assert_eq!(environment.delta(&["q"], "", Some(100)).expect("news"), ["+#4", "-b of q", "+c"], "b has moved");
    assert_eq!(environment.delta(&["p"], "c", Some(100)).expect("news"), ["+#4"], "segments concern all");
    environment.poll(&["*"], features(&[("b", "p"), ("c", "q")])).expect("taken");
    assert_eq!(environment.delta(&["*"], "", Some(101)).expect("news"), ["-#4"]);
    assert_eq!(environment.delta(&["*"], "", Some(100)).expect("news").len(), 6, "of both changes");
}

#[test]
fn polls_have_revisions_of_the_process() {
    let mut environment = Environment::new();
    let of = |names: &[(&str, &str)], revision: u64| {
        let mut document = features(names);
        document["meta"] = json!({"revisionId": revision});
        document
    };
    environment.poll(&["*"], of(&[("a", "p")], 7)).expect("taken");
    assert_eq!(environment.state.revision(), 100, "other tokens may feed the state, too");
    let snapshot = environment.snapshot();
    assert_eq!((snapshot.revision(), snapshot.upstream_revision()), (100, Some(7)), "two names for two revisions");
    environment.poll(&["*"], of(&[("b", "p")], 7)).expect("taken");
    assert_eq!(environment.state.revision(), 101, "a change has a revision of its own");
    environment.poll(&["*"], of(&[("c", "p")], 20)).expect("taken");
    assert_eq!(environment.state.revision(), 102);
    environment.poll(&["*"], of(&[("d", "p")], 3)).expect("taken");
    assert_eq!(environment.state.revision(), 103, "the upstream began again");
}

#[test]
fn f2_flags_that_are_suddenly_gone_stay() {
    let mut environment = Environment::new();
    let empty = |revision: Value| json!({"features": [], "meta": {"revisionId": revision}});
    let mut full = features(&[("a", "p")]);
    full["meta"] = json!({"revisionId": 7});
    environment.poll(&["*"], full).expect("taken");
    assert_eq!(environment.poll(&["*"], empty(json!(7))), Err(Refused::SuddenlyEmpty));
    assert_eq!(environment.names(), ["a"]);
    assert_eq!(environment.poll(&["*"], empty(json!(8))), Ok(1), "a new revision may be empty");
    assert!(environment.names().is_empty());
    assert_eq!(environment.poll(&["*"], empty(json!(8))), Ok(0), "and stay so");
}

#[test]
fn each_token_feeds_its_own_projects() {
    let mut environment = Environment::new();
    environment.poll(&["p"], features(&[("a", "p"), ("b", "p")])).expect("taken");
    environment.poll(&["q", "r"], features(&[("c", "q")])).expect("taken");
    assert_eq!(environment.names(), ["a", "b", "c"]);
    environment.poll(&["p"], features(&[("a", "p")])).expect("taken");
    assert_eq!(environment.names(), ["a", "c"], "b is gone, c is another's");
    let with_segment = |names: &[(&str, &str)], id: i64, text: &str| {
        let mut document = features(names);
        document["segments"] = json!([{"id": id, "constraints": [], "text": text}]);
        document
    };
    environment.poll(&["p"], with_segment(&[("a", "p")], 1, "old")).expect("taken");
    environment.poll(&["q", "r"], with_segment(&[("c", "q")], 1, "new")).expect("taken");
    assert!(environment.state.segments()[&1].json.contains("new"), "the newest response");
    environment.poll(&["q", "r"], features(&[("c", "q")])).expect("taken");
    assert!(environment.state.segments()[&1].json.contains("old"));
    environment.poll(&["p"], features(&[("a", "p")])).expect("taken");
    assert!(environment.state.segments().is_empty(), "no token sees it any more");
    environment.poll(&["*"], features(&[("d", "q")])).expect("taken");
    assert_eq!(environment.names(), ["d"]);
}

#[test]
fn a_saved_state_stays_until_the_first_response() {
    let mut environment = Environment::new();
    let mut saved = features(&[("a", "p"), ("b", "q")]);
    saved["segments"] = json!([{"id": 1, "constraints": []}]);
    saved["meta"] = json!({"revisionId": 7});
    let events = environment.state.restore(document(&saved)).expect("taken");
    environment.record(events);
    assert_eq!((environment.names().len(), environment.state.segments().len()), (2, 1));
    assert_eq!(environment.state.upstream_revision(&Projects::All), None, "a delta begins with the whole state");
    let empty = json!({"features": [], "meta": {"revisionId": 7}});
    assert_eq!(environment.poll(&["*"], empty), Err(Refused::SuddenlyEmpty));
    environment.poll(&["p"], features(&[("c", "p")])).expect("taken");
    assert_eq!(environment.names(), ["b", "c"]);
    assert!(environment.state.segments().is_empty(), "the server has none");
}

fn updated(id: u64, name: &str) -> Value {
    json!({"eventId": id, "type": "feature-updated", "feature": with(json!({"project": "p"}), name)})
}

#[test]
fn events_of_the_upstream_change_the_state() {
    let mut environment = Environment::new();
    let whole = json!({"eventId": 5, "type": "hydration", "features": [with(json!({"project": "p"}), "a")],
        "segments": [{"id": 1}]});
    environment.push(json!([whole])).expect("taken");
    assert_eq!((environment.state.revision(), environment.names()), (5, vec!["a".to_owned()]));
    environment
        .push(json!([
            updated(6, "b"),
            {"eventId": 7, "type": "segment-updated", "segment": {"id": 2}},
            {"eventId": 7, "type": "segment-removed", "segmentId": 1},
            {"eventId": 8, "type": "later"},
            {"eventId": 9, "type": "feature-removed", "featureName": "a", "project": "p"},
        ]))
        .expect("taken");
    assert_eq!((environment.state.revision(), environment.names()), (9, vec!["b".to_owned()]));
    assert_eq!(environment.delta(&["*"], "", Some(5)).expect("news"), ["+b", "+#2", "-#1", "-a of p"]);
    assert_eq!(environment.state.upstream_revision(&Projects::All), Some(9));
    assert_eq!(environment.push(json!([updated(9, "b")])), Ok(0), "a duplicate");
    assert_eq!(environment.delta(&["*"], "", Some(9)), None);
}

#[test]
fn a_flag_that_moves_between_projects_stays() {
    let mut environment = Environment::new();
    environment
        .push(json!([{"eventId": 5, "type": "hydration", "features": [with(json!({"project": "p"}), "a")]}]))
        .expect("taken");
    let moved = |id: u64, project: &str| json!({"eventId": id, "type": "feature-updated", "feature": with(json!({"project": project}), "a")});
    let gone = |id: u64, project: &str| json!({"eventId": id, "type": "feature-removed", "featureName": "a", "project": project});
    environment.push(json!([moved(6, "q"), gone(6, "p")])).expect("taken");
    assert_eq!(environment.names(), ["a"], "it is gone from p alone");
    assert_eq!(environment.delta(&["p"], "", Some(5)).expect("news"), ["-a of p"]);
    environment.push(json!([gone(7, "q"), moved(7, "p")])).expect("taken");
    assert_eq!(environment.names(), ["a"]);
    environment.push(json!([gone(8, "p")])).expect("taken");
    assert!(environment.names().is_empty());
}

#[test]
fn f4_events_out_of_order_or_without_a_state_are_refused_whole() {
    let mut environment = Environment::new();
    assert_eq!(environment.push(json!([updated(1, "a")])), Err(Refused::NoState));
    environment.push(json!([{"eventId": 5, "type": "hydration", "features": []}])).expect("taken");
    assert_eq!(environment.push(json!([updated(7, "a"), updated(6, "b")])), Err(Refused::OutOfOrder));
    assert_eq!(environment.push(json!([updated(4, "a")])), Err(Refused::OutOfOrder));
    assert!(environment.names().is_empty());
    environment.push(json!([updated(7, "a")])).expect("taken");
    let reset = json!([{"eventId": 2, "type": "hydration", "features": [with(json!({}), "z")]}]);
    environment.push(reset).expect("an upstream may begin again");
    assert_eq!((environment.names(), environment.state.revision()), (vec!["z".to_owned()], 100));
    assert_eq!(environment.state.upstream_revision(&Projects::All), Some(2));
    environment.push(json!([updated(7, "y")])).expect("taken");
    assert_eq!(environment.state.revision(), 101, "7 was another state");
    environment.push(json!([updated(8, "x")])).expect("taken");
    assert_eq!(environment.state.revision(), 8, "the upstream's again");
    assert_eq!(environment.delta(&["*"], "", Some(101)).expect("news"), ["all x,y,z"]);
    assert_eq!(environment.delta(&["*"], "", Some(8)), None);
}

#[test]
fn events_of_several_tokens_have_revisions_of_the_process() {
    let mut environment = Environment::new();
    let whole = |id: u64, name: &str| json!({"events": [{"eventId": id, "type": "hydration", "features": [with(json!({"project": name}), name)]}]});
    for (project, is_only_source, revision) in [("p", true, 5), ("q", false, 100), ("q", true, 100)] {
        let events = DeltaEvent::read_all(whole(5, project).to_string().as_bytes()).expect("events");
        let scope = Projects::new(&[project]);
        let events = environment.state.apply_events(&scope, events, is_only_source).expect("taken");
        environment.record(events);
        assert_eq!(environment.state.revision(), revision, "{project} {is_only_source}");
    }
    assert_eq!(environment.names(), ["p", "q"]);
    assert_eq!(environment.state.upstream_revision(&Projects::new(&["q"])), Some(5));
    assert_eq!(environment.delta(&["*"], "", Some(5)).expect("news"), ["+q"]);
    assert_eq!(environment.delta(&["*"], "", Some(6)).expect("news"), ["all p,q"], "6 is of another gateway");
}

#[test]
fn a_stream_begins_with_the_state_and_goes_on_with_changes() {
    let mut environment = Environment::new();
    environment.poll(&["*"], features(&[("a", "p")])).expect("taken");
    let text = |environment: &Environment, event, client| {
        let snapshot = environment.snapshot();
        let follower = Follower { projects: &Projects::All, scope: &snapshot.scope(&Projects::All), name_prefix: "" };
        let mut out = Vec::new();
        snapshot.stream_event(event, &follower, client, &mut out);
        String::from_utf8(out).expect("UTF-8")
    };
    let first = text(&environment, StreamEvent::Connected, None);
    assert!(
        first.starts_with(
            "event: unleash-connected\nid: 100\ndata: {\"events\":[{\"eventId\":100,\"type\":\"hydration\","
        ),
        "{first}"
    );
    assert!(first.ends_with("]}\n\n") && first.lines().count() == 4);
    let again = text(&environment, StreamEvent::Connected, Some(100));
    assert_eq!(again, "event: unleash-connected\nid: 100\ndata: {\"events\":[]}\n\n");
    assert_eq!(text(&environment, StreamEvent::Updated, Some(100)), "");
    environment.poll(&["*"], features(&[])).expect("taken");
    assert_eq!(
        text(&environment, StreamEvent::Updated, Some(100)),
        "event: unleash-updated\nid: 101\ndata: {\"events\":[{\"eventId\":101,\"type\":\"feature-removed\",\"featureName\":\"a\",\"project\":\"p\"}]}\n\n"
    );
}

#[test]
fn flags_and_segments_of_a_token_that_is_gone_go_when_all_others_have_shown_theirs() {
    let mut environment = Environment::new();
    let of = |names: &[(&str, &str)], segments: &[i64]| {
        let mut document = features(names);
        document["segments"] = segments.iter().map(|id| json!({"id": id, "constraints": []})).collect();
        document
    };
    let [all, p, q] = [&["*"], &["p"], &["q"]].map(|names| Projects::new(names));
    environment.poll(&["p"], of(&[("a", "p")], &[1])).expect("taken");
    environment.poll(&["q"], of(&[("b", "q")], &[1, 2])).expect("taken");
    let keep = |environment: &mut Environment, scopes: &[&Projects]| {
        let events = environment.state.keep_scopes(scopes);
        environment.record(events)
    };
    assert_eq!(keep(&mut environment, &[&p, &q]), 0, "both feed it");
    assert!(!environment.state.has_unseen(&[&p, &q]));
    assert!(!environment.state.has_scopes_besides(|scope| *scope == p || *scope == q));
    assert!(
        environment.state.has_scopes_besides(|scope| *scope == p),
        "the other one may be that of a token that is gone"
    );
    let before = environment.state.revision();
    assert_eq!(keep(&mut environment, &[&p]), 2, "a flag and a segment");
    assert_eq!(environment.names(), ["a"]);
    assert_eq!(environment.state.segments().into_keys().collect::<Vec<_>>(), [1]);
    assert_eq!(environment.delta(&["*"], "", Some(before)).expect("news"), ["-#2", "-b of q"]);
    assert_eq!(keep(&mut environment, &[&p]), 0, "nothing is left");
    // A token that sees all goes, and two that it has covered take its place.
    environment.poll(&["*"], of(&[("a", "p"), ("b", "q"), ("c", "r")], &[1])).expect("taken");
    assert_eq!(keep(&mut environment, &[&p, &q]), 0, "neither has shown its flags");
    environment.poll(&["p"], of(&[("a", "p")], &[1])).expect("taken");
    assert_eq!(keep(&mut environment, &[&p, &q]), 0, "one has not");
    assert_eq!(environment.names(), ["a", "b", "c"]);
    environment.poll(&["q"], of(&[("b", "q")], &[1])).expect("taken");
    assert_eq!(keep(&mut environment, &[&p, &q]), 1);
    assert_eq!(environment.names(), ["a", "b"]);
    assert!(!environment.state.has_unseen(&[&p, &q]) && environment.state.has_unseen(&[&p]));
    assert!(!environment.state.has_unseen(&[&all]), "it would have to show its flags first");
}

#[test]
fn flags_of_a_backup_that_no_token_sees_go_with_the_first_responses() {
    let mut environment = Environment::new();
    let saved = document(&features(&[("a", "p"), ("b", "gone")]));
    let events = environment.state.restore(saved).expect("taken");
    environment.record(events);
    let p = Projects::new(&["p"]);
    assert!(!environment.state.has_unseen(&[&p]), "the server has not responded");
    environment.poll(&["p"], features(&[("a", "p")])).expect("taken");
    assert!(environment.state.has_scopes_besides(|scope| *scope == p), "flags of the backup may have stayed");
    let events = environment.state.keep_scopes(&[&p]);
    environment.record(events);
    assert_eq!(environment.names(), ["a"]);
    assert!(!environment.state.has_scopes_besides(|scope| *scope == p));
}
