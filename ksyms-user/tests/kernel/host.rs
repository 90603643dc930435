//! On the machine that the tests are started on, outside any VM.

use std::{env, fs};

use libtest_mimic::{Completion, Trial};

use crate::harness::{ksyms_attach, run};

pub(crate) fn trials() -> Vec<Trial> {
    vec![Trial::ignorable_test(
        "host::no_kprobes_in_the_kernel",
        || {
            if env::var_os("KSYMS_TEST_KERNEL").is_some() {
                return Ok(Completion::ignored_with("this kernel has kprobes"));
            }
            if fs::exists("/sys/bus/event_source/devices/kprobe")? {
                return Ok(Completion::ignored_with(
                    "this machine's kernel has kprobes",
                ));
            }
            if !rustix::process::geteuid().is_root() {
                return Ok(Completion::ignored_with("needs root"));
            }
            run(&mut ksyms_attach([
                "--pattern",
                "tcp_*",
                "--duration",
                "0s",
            ]))
            .exits(3)
            .says(["no kprobes", "CONFIG_KPROBES"])
            .prints_nothing();
            Ok(Completion::Completed)
        },
    )]
}
