//! The tutorial for an HTTP edge.

#[test]
fn the_tutorial_for_http_works_as_written() {
    weir_tests::tutorial::carry_out("http").unwrap_or_else(|why| panic!("{why}"));
}
