//! The tutorial for Redis teams.

#[test]
fn the_tutorial_for_redis_works_as_written() {
    weir_tests::tutorial::carry_out("redis").unwrap_or_else(|why| panic!("{why}"));
}
