use weir_mongodb_codec::bson::{self, Writer};

use super::*;

/// The facts of a command, with documents of a sequence beside it.
fn facts_of(body: impl FnOnce(&mut Writer<'_>), beside: &[(&str, &[u8])], check: impl FnOnce(Facts<'_>, Class)) {
    let mut out = Vec::new();
    bson::document(&mut out, body);
    let command = Command::read_in(Document::read(&out).unwrap(), Some(b"shop")).expect("a command");
    let arguments =
        beside.iter().map(|(name, bytes)| Argument { name: name.as_bytes(), document: Document::read(bytes).unwrap() });
    check(analyse(&command, arguments, &Limits::default()), classify(&command).1);
}

fn facts(body: impl FnOnce(&mut Writer<'_>), check: impl FnOnce(Facts<'_>, Class)) {
    facts_of(body, &[], check);
}

fn document(body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    bson::document(&mut out, body);
    out
}

/// Namespaces as text: a plus sign in front of those that are written.
fn names(facts: &Facts<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let one = |name: &Namespace<'_>| {
        format!("{}{}.{}", if name.is_written { "+" } else { "" }, text(name.db), text(name.collection))
    };
    facts.namespaces.iter().map(one).collect::<Vec<_>>().join(" ")
}

fn aggregate<'b>(stages: impl FnOnce(&mut Writer<'_>) + 'b) -> impl FnOnce(&mut Writer<'_>) + 'b {
    move |body| {
        body.string("aggregate", "orders");
        let mut stages = Some(stages);
        body.array("pipeline", 0..1, |writer, name, _| writer.document(name, stages.take().expect("one")));
    }
}

#[test]
fn reads_and_writes_name_their_collection() {
    facts(
        |body| body.string("find", "orders"),
        |facts, class| {
            assert_eq!(
                (facts.command, facts.class, class, &*names(&facts)),
                ("find", Class::Read, Class::Read, "shop.orders")
            );
            assert!(facts.is_read_only());
        },
    );
    facts(
        |body| body.string("insert", "orders"),
        |facts, _| {
            assert_eq!((facts.class, &*names(&facts)), (Class::Write, "+shop.orders"));
        },
    );
    let get_more = |body: &mut Writer<'_>| {
        body.int64("getMore", 5);
        body.string("collection", "orders");
    };
    facts(get_more, |facts, _| assert_eq!((facts.class, &*names(&facts)), (Class::Session, "shop.orders")));
    facts(|body| body.int32("aggregate", 1), |facts, _| assert_eq!(names(&facts), ""));
}

#[test]
fn out_and_merge_make_an_aggregation_a_write() {
    facts(aggregate(|stage| stage.document("$match", |_| {})), |facts, class| {
        assert_eq!((facts.class, class), (Class::Read, Class::Read));
    });
    facts(aggregate(|stage| stage.string("$out", "copy")), |facts, class| {
        assert_eq!((facts.class, class, &*names(&facts)), (Class::Write, Class::Write, "shop.orders +shop.copy"));
    });
    let out = |stage: &mut Writer<'_>| {
        stage.document("$out", |out| {
            out.string("db", "archive");
            out.string("coll", "copy");
        });
    };
    facts(aggregate(out), |facts, _| assert_eq!(names(&facts), "shop.orders +archive.copy"));
    let merge = |stage: &mut Writer<'_>| {
        stage.document("$merge", |merge| {
            merge.document("into", |into| {
                into.string("db", "archive");
                into.string("coll", "sums");
            });
        });
    };
    facts(aggregate(merge), |facts, class| {
        assert_eq!((facts.class, class, &*names(&facts)), (Class::Write, Class::Write, "shop.orders +archive.sums"));
    });
    // In a stage that only looks like one of another position, and inside of another pipeline.
    let inside = |stage: &mut Writer<'_>| {
        stage.document("$facet", |facet| {
            facet.array("a", 0..1, |writer, name, _| writer.document(name, |stage| stage.string("$out", "copy")));
        });
    };
    facts(aggregate(inside), |facts, _| assert_eq!(facts.class, Class::Write));
}

#[test]
fn other_collections_of_a_pipeline_are_found() {
    let lookup = |stage: &mut Writer<'_>| {
        stage.document("$lookup", |lookup| {
            lookup.string("from", "people");
            lookup.array("pipeline", 0..1, |writer, name, _| {
                writer.document(name, |stage| stage.string("$unionWith", "guests"));
            });
        });
    };
    facts(aggregate(lookup), |facts, _| {
        assert_eq!((facts.class, &*names(&facts)), (Class::Read, "shop.orders shop.people shop.guests"));
    });
    let graph = |stage: &mut Writer<'_>| stage.document("$graphLookup", |graph| graph.string("from", "orders"));
    facts(aggregate(graph), |facts, _| assert_eq!(names(&facts), "shop.orders"));
}

#[test]
fn javascript_is_found_in_filters_and_in_sequences() {
    let find = |body: &mut Writer<'_>| {
        body.string("find", "orders");
        body.document("filter", |filter| {
            filter.array("$or", 0..1, |writer, name, _| writer.document(name, |or| or.string("$where", "true")));
        });
    };
    facts(find, |facts, _| assert!(facts.runs_javascript && facts.class == Class::Read));
    let update = document(|update| update.document("q", |q| q.string("$where", "true")));
    facts_of(
        |body| body.string("update", "orders"),
        &[("updates", &update)],
        |facts, _| {
            assert!(facts.runs_javascript && facts.flaw.is_none());
        },
    );
    let map_reduce = |body: &mut Writer<'_>| {
        body.string("mapReduce", "orders");
        body.document("out", |out| out.string("replace", "sums"));
    };
    facts(map_reduce, |facts, _| assert!(facts.runs_javascript && names(&facts) == "shop.orders +shop.sums"));
}

#[test]
fn full_names_of_other_commands_are_found() {
    let rename = |body: &mut Writer<'_>| {
        body.string("renameCollection", "shop.a");
        body.string("to", "other.b.c");
    };
    facts(rename, |facts, _| assert_eq!((facts.class, &*names(&facts)), (Class::Ddl, "+shop.a +other.b.c")));
    let ns = document(|info| info.string("ns", "shop.a"));
    facts_of(
        |body| body.int32("bulkWrite", 1),
        &[("nsInfo", &ns)],
        |facts, _| {
            assert_eq!((facts.class, &*names(&facts)), (Class::Write, "+shop.a"));
        },
    );
    let inside = |body: &mut Writer<'_>| {
        body.int32("bulkWrite", 1);
        body.array("nsInfo", ["shop.a", "shop.b"], |writer, name, ns| {
            writer.document(name, |info| info.string("ns", ns));
        });
    };
    facts(inside, |facts, _| assert_eq!(names(&facts), "+shop.a +shop.b"));
    facts(|body| body.string("renameCollection", "nodot"), |facts, _| assert_eq!(facts.flaw, Some(Flaw::Broken)));
}

#[test]
fn an_explain_is_what_it_explains_and_the_unknown_is_administrative() {
    facts(
        |body| body.document("explain", |inner| inner.string("delete", "orders")),
        |facts, class| {
            assert_eq!((facts.command, facts.class, class), ("explain", Class::Write, Class::Write));
            assert_eq!(names(&facts), "+shop.orders");
        },
    );
    facts(
        |body| body.document("explain", |inner| inner.string("find", "orders")),
        |facts, _| {
            assert!(facts.is_read_only() && names(&facts) == "shop.orders");
        },
    );
    let twice = |body: &mut Writer<'_>| {
        body.document("explain", |inner| inner.document("explain", |inner| inner.string("find", "a")));
    };
    facts(twice, |facts, _| assert_eq!(facts.class, Class::Admin));
    facts(
        |body| body.int32("newCommand", 1),
        |facts, class| {
            assert_eq!((facts.command, facts.class, class), ("other", Class::Admin, Class::Admin));
        },
    );
}

#[test]
fn m3_a_command_beyond_a_limit_is_not_whole() {
    let mut deep = document(|inner| inner.int32("a", 1));
    for _ in 0..120 {
        let inner = deep;
        deep = document(|outer| outer.embed("a", Document::read(&inner).unwrap()));
    }
    let filter = |body: &mut Writer<'_>| {
        body.string("find", "orders");
        body.embed("filter", Document::read(&deep).unwrap());
    };
    facts(filter, |facts, _| assert!(facts.flaw == Some(Flaw::Depth) && !facts.is_read_only()));
    let many = |body: &mut Writer<'_>| {
        body.string("find", "orders");
        body.array("list", 0..40_000, |writer, name, _| writer.int32(name, 1));
    };
    facts(many, |facts, _| assert_eq!(facts.flaw, Some(Flaw::Elements)));
    let stages = |body: &mut Writer<'_>| {
        body.string("aggregate", "orders");
        body.array("pipeline", 0..100, |writer, name, number| {
            writer.document(name, |stage| stage.string("$unionWith", format!("c{number}")));
        });
    };
    facts(stages, |facts, _| assert_eq!((facts.flaw, facts.namespaces.len()), (Some(Flaw::Namespaces), 64)));
}
