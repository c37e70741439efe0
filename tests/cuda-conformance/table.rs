//! The results as text for the terminal, and as the page in `docs`.

use std::fmt::Write as _;

use crate::measured::{Machine, Run};
use crate::probe::{Outcome, Probe, Simulated, Verdict};

/// A line for each question, more lines where an answer is not the expected one, and the counts.
pub(crate) fn text(machine: &Machine, results: &[(&Probe, Outcome)]) -> String {
    let mut text = format!("{}, {}\n\n", machine.device, machine.driver);
    let mut counts = [0; 3];
    for (probe, outcome) in results {
        let (word, which) = match outcome.verdict {
            Verdict::Passed => ("ok", 0),
            Verdict::Allowed => ("ok, otherwise", 0),
            Verdict::Failed => ("FAILED", 1),
            Verdict::Skipped => ("skipped", 2),
        };
        counts[which] += 1;
        let _ = writeln!(text, "{word:<14} {:<44} {}", probe.name, outcome.answer);
        match (outcome.verdict, probe.simulated) {
            (Verdict::Passed, _) => {}
            (Verdict::Failed, Simulated::Otherwise { answer, .. }) if machine.simulated => {
                let _ = writeln!(text, "{:<14} {}\n{:<14} expected: {answer}", "", probe.asks, "");
            }
            (Verdict::Skipped, Simulated::NotModelled(why)) if machine.simulated => {
                let _ = writeln!(text, "{:<14} {why}", "");
            }
            (Verdict::Skipped, _) => {}
            _ => {
                let _ = writeln!(text, "{:<14} {}\n{:<14} expected: {}", "", probe.asks, "", probe.expected);
            }
        }
    }
    let [passed, failed, skipped] = counts;
    let _ = writeln!(text, "\n{passed} passed, {failed} failed, {skipped} skipped");
    text
}

/// The theme of a question: the first part of its name.
fn theme(probe: &Probe) -> &str {
    probe.name.split('.').next().unwrap_or_default()
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

/// The whole page, from a run on the simulated driver and the recorded runs on real ones.
pub(crate) fn markdown(results: &[(&Probe, Outcome)], runs: &[Run]) -> String {
    let mut text = String::from(INTRODUCTION);
    match runs {
        [] => text.push_str("Recorded runs on real drivers: none yet. The column says `not measured`.\n"),
        _ => text.push_str("Recorded runs on real drivers:\n\n"),
    }
    for (number, run) in runs.iter().enumerate() {
        let Run { date, machine, driver, device, answers } = run;
        let asked = results.iter().filter_map(|(probe, outcome)| Some((answers.get(probe.name)?, &outcome.answer)));
        let (same, other): (Vec<_>, Vec<_>) = asked.partition(|(real, simulated)| real == simulated);
        let counts = format!("{} answers are the same, {} are not", same.len(), other.len());
        let _ = writeln!(text, "{}. {device}, driver {driver}, {machine}, {date}: {counts}", number + 1);
    }
    let mut last = "";
    for (probe, outcome) in results {
        if theme(probe) != last {
            last = theme(probe);
            let _ = write!(text, "\n## {last}\n\n| what is asked | simulated driver |");
            let heading = |number: usize| if runs.len() > 1 { format!(" real driver {number} |") } else { REAL.into() };
            (1..=runs.len().max(1)).for_each(|number| text.push_str(&heading(number)));
            let _ = writeln!(text, "\n|---|---|{}", "---|".repeat(runs.len().max(1)));
        }
        let simulated = match probe.simulated {
            Simulated::Same => outcome.answer.clone(),
            Simulated::Otherwise { why, .. } => {
                format!("{} ({why}; documented or believed: {})", outcome.answer, probe.expected)
            }
            Simulated::NotModelled(why) => format!("not modelled: {why}; documented or believed: {}", probe.expected),
        };
        let _ = write!(text, "| {} | {} |", cell(probe.asks), cell(&simulated));
        if runs.is_empty() {
            text.push_str(" not measured |");
        }
        for run in runs {
            match run.answers.get(probe.name) {
                None => text.push_str(" not measured |"),
                Some(real) if *real == outcome.answer => text.push_str(" the same |"),
                Some(real) => {
                    let _ = write!(text, " **{}** |", cell(real));
                }
            }
        }
        text.push('\n');
    }
    text
}

const REAL: &str = " real driver |";

const INTRODUCTION: &str = "\
# What the simulated CUDA driver answers, and what real ones do

`make conformance-table` writes this page; a test compares it with the output of the program. The questions are those of
`tests/cuda-conformance`, which asks every driver the same questions with the same expectations. [gpu.md](gpu.md) says how
to run it on a GPU; on the simulated driver:

```sh
tests/simcuda/driver/place.sh target/simcuda
cargo run -p devexchange-tests --bin cuda-conformance -- --driver target/simcuda/libcuda.so.1
```

An answer of a real driver that differs from the simulated driver's is **bold**. Where the simulated driver differs on
purpose, or does not model something, its cell says why. The cell then also gives the documented answer or, where nothing
is documented, the believed one. A believed answer comes from public reports of other projects, which the sources name, or
is a guess: a run on a real driver decides.

";
