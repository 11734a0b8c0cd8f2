//! The one list of all cases, read by the suite itself and by [`conformance_tests`].
//!
//! A case that is not listed here is dead code, which the compiler reports.
//!
//! [`conformance_tests`]: crate::conformance_tests

use super::{
    Case, archive, batch, cancel, egress, escape, exec, exec_input, file, lifecycle, limits,
    restart, resume, root, sealed, sealed_host, warm,
};

/// Generates one `#[test]` per case of the suite, each with a
/// [`Subject`](crate::conformance::Subject) of its own: cases about the engine in a module
/// `engine`, cases about the agent in a module `agent`.
///
/// Takes the name of an `async fn() -> Subject` in the invoking module.
#[macro_export]
macro_rules! conformance_tests {
    ($make:ident) => {
        $crate::conformance_cases! { $crate::conformance_test_modules { $make } }
    };
}

/// The same, without the cases about the agent. Those run on an engine without isolation, on our
/// own and on one with a separate kernel; other engines start the same agent on the same kernel and
/// need no further proof.
#[macro_export]
macro_rules! conformance_engine_tests {
    ($make:ident) => {
        $crate::conformance_cases! { $crate::conformance_engine_test_modules { $make } }
    };
}

/// Passes the list to another macro, after the given tokens.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_cases {
    ($then:path { $($given:tt)* }) => {
        $then! {
            [$($given)*]
            engine {
                lifecycle {
                    a_new_container_says_hello
                    creating_twice_is_one_container
                    two_creators_at_once_make_one_container
                    a_container_is_listed_and_inspected_as_running
                    a_destroyed_container_is_not_found
                    what_was_never_made_is_not_found
                    destroy_ends_running_execs
                    two_streams_work_at_once
                    containers_share_no_files
                    a_shut_down_container_has_exited_and_can_be_destroyed
                    waiting_for_the_end_returns_on_destroy
                    twenty_containers_are_made_at_once
                    a_dropped_create_leaves_nothing
                    an_abandoned_create_leaves_nothing
                    a_dropped_create_can_be_repeated
                    a_dropped_repetition_of_create_leaves_the_container
                    another_engine_over_the_same_state_finds_the_container
                    another_engine_over_the_same_state_destroys_the_container
                }
                restart {
                    a_container_that_ended_is_started_again_with_its_files
                    a_running_container_is_started_again_and_its_execs_end
                    a_container_is_started_again_and_again
                    another_engine_over_the_same_state_starts_the_container_again
                }
                resume {
                    closing_the_stream_leaves_the_exec_running
                    every_byte_arrives_once_over_many_streams
                    an_unacknowledged_exec_is_told_again_from_its_beginning
                    acknowledged_output_is_gone
                    a_second_follower_takes_over
                    an_exec_id_runs_once
                    finished_execs_are_listed_until_they_are_forgotten
                    a_stopped_reader_holds_up_nobody_else
                }
                exec {
                    it_runs_in_the_directory_it_was_given
                    the_environment_is_exactly_what_was_given
                    the_agent_tells_the_variables_of_its_image
                    a_mebibyte_of_binary_output_arrives_byte_for_byte
                    thirty_two_execs_run_at_once
                }
                cancel {
                    cancel_kills_a_daemon_that_left_its_session
                }
                warm {
                    a_warmed_interpreter_does_what_a_new_one_does
                }
                file {
                    a_large_file_makes_the_round_trip
                    execs_and_files_see_the_same_files
                }
                sealed {
                    it_runs_as_user_1000
                    it_has_no_capabilities
                    it_can_gain_no_privileges_and_is_filtered
                    the_root_is_read_only
                    the_workspace_is_writable_and_a_home
                    tmp_is_writable_and_bounded
                    mounts_and_namespaces_are_denied
                    kernel_settings_are_not_writable
                    what_tells_of_the_host_is_masked
                    what_the_kernel_counts_for_a_user_is_bounded
                    devices_are_the_usual_ones
                    interfaces_can_be_listed
                    netlink_sockets_are_few
                }
                sealed_host {
                    there_is_no_network_but_loopback
                    the_host_name_is_its_own
                    the_namespaces_are_its_own
                    init_is_the_agent_and_no_host_process_is_seen
                    the_agent_cannot_be_read_or_killed
                    host_files_are_absent
                    no_descriptor_is_inherited
                }
                egress {
                    names_are_resolved_and_served_inside
                }
                limits {
                    disk_space_is_bounded_or_seen
                    a_memory_hog_is_killed_and_the_container_lives
                    processes_are_bounded
                    processor_time_is_bounded
                }
                root {
                    root_without_permission_is_refused
                    root_has_its_uid_and_no_capabilities
                    root_cannot_write_the_image
                    an_exec_of_root_can_be_cancelled
                    what_root_leaves_behind_goes_with_the_container
                }
            }
            agent {
                exec {
                    stdout_and_stderr_are_separate
                    the_exit_code_is_told
                    the_signal_that_ended_it_is_told
                    a_missing_command_is_not_started
                    a_file_that_is_not_executable_is_not_started
                    a_missing_directory_is_not_started
                    a_long_argument_arrives_whole
                    a_broken_pipe_ends_the_writer_quietly
                    usage_is_counted
                    a_background_process_does_not_hold_up_the_exit
                }
                exec_input {
                    stdin_is_echoed_until_its_end
                    without_stdin_a_reader_sees_the_end_at_once
                    repeated_input_is_accepted_once
                    output_is_seen_before_the_exit
                    a_terminal_has_the_size_it_was_given
                    a_terminal_passes_an_interrupt_on
                    a_signal_reaches_the_process
                }
                cancel {
                    a_timeout_ends_the_command_and_keeps_its_output
                    a_timeout_kills_what_ignores_the_warning
                    cancel_ends_the_command
                    cancel_ends_what_a_finished_exec_left_behind
                    an_unknown_exec_is_not_found
                }
                file {
                    what_was_written_is_read_back
                    a_part_of_a_file_is_read
                    an_old_etag_is_a_conflict
                    a_file_that_must_be_absent_is_not_replaced
                    appending_keeps_what_was_there
                    every_way_to_ask_tells_one_etag
                    a_listing_pages_in_order
                    a_glob_chooses
                    any_name_works
                    delete_removes_a_tree_and_protects_the_root
                    move_and_copy_keep_the_content
                    a_missing_file_is_not_found
                    an_abandoned_write_changes_nothing
                }
                batch {
                    a_batch_does_all_of_it
                    a_failing_batch_changes_nothing
                    a_loose_batch_does_what_it_can
                }
                archive {
                    an_archive_makes_the_round_trip
                    an_import_is_all_or_nothing
                    an_archive_that_would_escape_is_refused
                    an_archive_over_its_bounds_is_refused
                    an_export_leaves_out_what_it_is_told_to
                }
                escape {
                    paths_that_leave_the_root_are_denied
                    symlinks_that_leave_the_root_are_denied
                    a_symlinked_directory_is_no_way_out
                    what_is_no_regular_file_is_not_read
                }
            }
        }
    };
}

/// The second half of [`conformance_tests!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test_modules {
    ([$make:ident] $($about:ident { $($module:ident { $($case:ident)* })* })*) => {
        $(
            mod $about {
                $(
                    mod $module {
                        $(
                            #[test]
                            fn $case() {
                                $crate::conformance::run(
                                    concat!(stringify!($module), "::", stringify!($case)),
                                    super::super::$make,
                                );
                            }
                        )*
                    }
                )*
            }
        )*
    };
}

/// The second half of [`conformance_engine_tests!`].
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_engine_test_modules {
    ([$make:ident] engine { $($cases:tt)* } agent { $($others:tt)* }) => {
        $crate::conformance_test_modules! { [$make] engine { $($cases)* } }
    };
}

macro_rules! all {
    ([] $($about:ident { $($module:ident { $($case:ident)* })* })*) => {
        const ALL: &[Case] = &[$($($(
            Case {
                name: concat!(stringify!($module), "::", stringify!($case)),
                body: |subject| Box::pin($module::$case(subject)),
            },
        )*)*)*];
    };
}
conformance_cases! { all {} }

/// The names of all cases: `module::case`.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|case| case.name)
}

/// The case with this name; the macro above uses no other.
pub(super) fn find(name: &str) -> &'static Case {
    let found = ALL.iter().find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("the suite has no case {name}"))
}
