//! The core of each lane: what runs of it when the change does not reach it. At most 20 tests and 90 seconds of a lane, one
//! for each thing that a change elsewhere could break by surprise.

pub const E2E: &[&str] = &[
    "access::the_gateway_logs_in_for_clients_that_bring_no_password",
    "cluster::a_plain_client_uses_the_whole_cluster",
    "drain::an_exchange_under_way_is_finished",
    "drain::another_instance_takes_over_under_load_and_no_reply_is_lost",
    "integrity::churn_mixes_no_replies",
    "parity::redis::session",
    "parity::redis::strings",
    "pins::watch_pins_until_exec_discard_or_unwatch",
    "pipelining::a_long_mixed_pipeline_keeps_order",
    "pubsub::many_subscribers_are_one_at_the_server",
    "reload::reloads_under_load_cost_no_request",
    "sharding::each_key_is_on_one_shard_and_found_there",
    "tls::tls_on_both_sides",
    "tracking::another_client_is_notified_on_any_worker",
    "upgrade::load::pipelined_clients_and_newcomers_notice_nothing",
    "upstream::a_killed_server_costs_errors_but_no_connections",
    "users::denied_commands_of_a_pipeline_are_answered_here_and_the_rest_is_forwarded",
    "values::sizes_around_every_boundary_come_back_unchanged",
    "workers::eight_connections_on_two_workers_spread_four_and_four",
];

pub const HOSTILE: &[&str] = &[
    "abuse::connections_per_listener_are_limited",
    "policy::r15_administrative_commands_are_refused_in_every_spelling",
    "pressure::r7_a_client_that_never_reads_is_not_read_any_more",
    "protocol::r3_endless_lines_end",
    "protocol::r4_lengths_that_are_no_lengths",
    "reconnects::a_write_from_before_a_reconnect_never_overwrites_a_later_one",
    "resources::x4_the_byte_budget_sheds_and_recovers",
    "sessions::r20_replies_to_clients_that_left_are_dropped_in_step",
    "slow_readers::a_slow_reader_of_a_large_value_stops_nobody_else",
    "upstreams::x5_half_replies",
];

pub const HTTP: &[&str] = &[
    "access::a_line_shows_request_upstream_and_outcome",
    "buffering::an_upload_that_comes_in_pieces_reaches_its_origin_whole_and_with_its_length",
    "http2::a_response_waits_for_the_window_and_loses_nothing",
    "http2::curl_gets_posts_and_uploads",
    "http2_origins::a_real_origin_is_spoken_to_in_http2_whatever_the_client_speaks",
    "http2_origins::many_requests_share_one_connection_and_a_further_one_is_made_when_it_is_full",
    "leaving::a_client_that_leaves_while_it_waits_for_a_response_is_noticed",
    "leftovers::a_body_behind_a_response_that_has_none_reaches_nobody",
    "messages::bodies_of_both_framings_arrive_whole",
    "messages::pipelined_requests_are_answered_in_order",
    "origins::an_origin_that_closes_without_a_word_is_502_and_one_that_is_silent_504",
    "policies::tokens_are_verified_and_their_claims_forwarded",
    "refusals::h1_1_to_h1_10_malformed_heads",
    "restarts::a_rolling_restart_of_two_endpoints_with_default_settings_is_no_outage",
    "routes::hosts_and_paths_decide_in_the_documented_order",
    "service::a_drain_ends_idle_connections_and_tells_the_busy_ones",
    "tcp::bytes_go_both_ways_and_each_direction_ends_by_itself",
    "tls::the_certificate_is_that_of_the_requested_name",
    "upstreams::failures_are_retried_only_where_that_is_safe_and_configured",
    "websocket::frames_of_all_sizes_go_both_ways_as_they_are",
];

pub const ISOLATION: &[&str] = &[
    "config::s10_settings_that_look_like_protection_and_are_none_are_a_mistake",
    "reading::s1_others_do_not_wait_for_a_slow_reader",
    "refusals::s8_a_refusal_leaves_no_state_behind",
];

pub const POSTGRES: &[&str] = &["servers::every_major_serves_its_user_with_scram"];

pub const MONGODB: &[&str] = &[
    "drivers::every_check_of_pymongo_holds_through_weir",
    "failover::a_read_preference_chooses_the_members_that_a_read_may_have",
    "hostile::m1_lengths_that_no_message_has_end_the_connection",
    "hostile_owners::m9_cursors_of_another_user_are_unknown",
    "rules::a_denied_command_gets_code_13_and_nothing_of_it_reaches_the_server",
];

pub const FLAGS: &[&str] = &[
    "access::a_403_follows_a_verdict_and_a_503_everything_else",
    "access::f3_a_token_serves_its_own_api_and_environment",
    "hostile::f8_a_flood_of_random_tokens_costs_the_server_a_batch_per_second",
    "outages::f2_a_server_that_is_down_slow_or_wrong_changes_nothing",
    "outages::f4_deltas_and_streams_follow_the_server_through_gaps_and_wrong_orders",
    "outages::metrics_are_counted_once_whatever_the_server_responds_and_the_last_ones_leave_at_the_end",
    "protocol::a_stream_says_what_has_changed_and_goes_on_where_it_was",
    "protocol::documents_have_tags_by_which_clients_save_the_body",
    "sdks::every_sdk_sees_a_flag_created_changed_and_archived",
    "specification::every_check_of_every_file_holds",
];

pub const LAB: &[&str] = &[
    "a_comparison_without_a_gateway_shows_the_cost_of_the_gateway",
    "a_wrong_peer_is_refused_before_any_load",
    "demo::the_demo_loses_nothing_and_prints_its_counts",
    "placement::ketama_is_that_of_twemproxy",
    "upgrades::no_request_fails_while_the_program_is_upgraded",
    "unmeasurable_setups_are_refused_before_any_load",
];
