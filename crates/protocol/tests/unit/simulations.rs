//! Random simulations. One that fails prints the timeline of its smallest failing case.
#![allow(clippy::panic, reason = "a test fails by panicking")]

use proptest::prelude::{ProptestConfig, Strategy};
use proptest::test_runner::{TestCaseError, TestCaseResult, TestError, TestRunner};

use protocol::trace::failure::{attempt, check_timeline};

/// Runs a test with this many cases. A failure prints the timeline of the smallest case that fails,
/// then its message and the case.
pub fn run<S: Strategy<Value: Clone>>(cases: u32, strategy: &S, test: impl Fn(S::Value) -> TestCaseResult) {
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(strategy, |case| {
        let outcome = attempt(|| {
            test(case)?;
            check_timeline();
            Ok(())
        });
        outcome.unwrap_or_else(|message| Err(TestCaseError::fail(message)))
    });
    if let Err(error) = outcome {
        if let TestError::Fail(_, smallest) = &error {
            // The panic below prints its timeline.
            let _ = attempt(|| test(smallest.clone()));
        }
        panic!("{error}\n{runner}");
    }
}

/// Declares tests as `proptest!` does, of simulations.
macro_rules! simulations {
    (cases = $cases:expr; $($(#[$meta:meta])* fn $name:ident($($pattern:pat in $strategy:expr),+ $(,)?) $body:block)+) => {$(
        $(#[$meta])*
        fn $name() {
            $crate::simulations::run($cases, &($($strategy,)+), |($($pattern,)+)| {
                $body
                Ok(())
            });
        }
    )+};
}
pub(crate) use simulations;
