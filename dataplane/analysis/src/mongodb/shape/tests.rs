use weir_mongodb_codec::bson::{self, Document, Writer};

use super::*;

fn form_of(body: impl FnOnce(&mut Writer<'_>), beside: &[(&str, &[u8])]) -> String {
    let mut out = Vec::new();
    bson::document(&mut out, body);
    let command = Command::read_in(Document::read(&out).unwrap(), Some(b"shop")).expect("a command");
    let arguments =
        beside.iter().map(|(name, bytes)| Argument { name: name.as_bytes(), document: Document::read(bytes).unwrap() });
    let form = normal_form(&command, arguments, &Limits::default()).expect("a form");
    String::from_utf8(form).expect("text")
}

fn form(body: impl FnOnce(&mut Writer<'_>)) -> String {
    form_of(body, &[])
}

fn document(body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    bson::document(&mut out, body);
    out
}

#[test]
fn values_are_left_out_and_structure_stays() {
    let find = form(|body| {
        body.string("find", "orders");
        body.document("filter", |filter| {
            filter.string("state", "open");
            filter.array("$or", 0..1, |writer, name, _| {
                writer.document(name, |or| or.document("total", |total| total.int32("$gt", 5)));
            });
        });
        body.document("sort", |sort| sort.int32("total", -1));
        body.int32("limit", 10);
        body.string("$db", "shop");
        body.document("lsid", |lsid| lsid.binary("id", 4, &[1; 16]));
    });
    assert_eq!(find, "find orders {filter:{state:?,$or:[{total:{$gt:?}}]},sort:{total:-1},limit:?}");
}

#[test]
fn lists_of_any_length_are_one_shape() {
    let with = |count: i32| {
        form(move |body| {
            body.string("find", "orders");
            body.document("filter", |filter| {
                filter.document("_id", |id| id.array("$in", 0..count, |writer, name, item| writer.int32(name, item)));
            });
        })
    };
    assert_eq!(with(1), "find orders {filter:{_id:{$in:[?]}}}");
    assert_eq!(with(1), with(1000));
    assert_ne!(with(1), with(0));
}

#[test]
fn paths_of_fields_stay_in_expressions_and_are_data_elsewhere() {
    let pipeline = form(|body| {
        body.string("aggregate", "orders");
        body.array("pipeline", 0..3, |writer, name, stage| {
            writer.document(name, |writer| match stage {
                0 => writer.document("$match", |it| it.string("price", "$5")),
                1 => writer.document("$group", |it| {
                    it.string("_id", "$state");
                    it.document("n", |n| n.int32("$sum", 7));
                    it.document("t", |t| t.string("$literal", "$secret"));
                }),
                _ => writer.document("$sort", |it| it.int32("n", 1)),
            });
        });
    });
    let expected = r#"aggregate orders {pipeline:[{$match:{price:?}},{$group:{_id:"$state",n:{$sum:?},t:{$literal:?}}},{$sort:{n:1}}]}"#;
    assert_eq!(pipeline, expected);
}

#[test]
fn documents_of_an_insert_are_no_part_of_the_shape() {
    let inside = form(|body| {
        body.string("insert", "orders");
        body.array("documents", 0..2, |writer, name, _| writer.document(name, |it| it.string("secret", "value")));
    });
    assert_eq!(inside, "insert orders {documents:?}");
    let one = document(|it| it.string("secret", "value"));
    let beside = form_of(|body| body.string("insert", "orders"), &[("documents", &one), ("documents", &one)]);
    assert_eq!(beside, "insert orders {} documents?");
    let update = |value: i32| document(|it| it.document("q", |q| q.int32("a", value)));
    let (first, second) = (update(1), update(2));
    let updates = form_of(|body| body.string("update", "orders"), &[("updates", &first), ("updates", &second)]);
    assert_eq!(updates, "update orders {} updates{q:{a:?}}");
}

#[test]
fn the_shape_of_a_form_is_a_promise() {
    let out = document(|body| body.string("find", "orders"));
    let command = Command::read_in(Document::read(&out).unwrap(), Some(b"shop")).expect("a command");
    assert_eq!(shape(&command, [], &Limits::default()), Ok(xxh64(b"find orders {}", 0)));
}
