//! The planner cuts a Program into segments that a device can run as one kernel each. A Program has no size limit; a
//! kernel has: instructions, bindings (inputs and outputs together). Cuts are placed where the fewest values pass through
//! memory.

use super::{Inst, Program, Reg};
use crate::dtype::Compute;

/// What one kernel may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Computing instructions; at least 1.
    pub instructions: usize,
    /// Inputs and outputs together; at least 4, since a select has three inputs and a result.
    pub bindings: usize,
}

/// Where a value that passes between memory and kernels lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The k-th input of the whole program.
    Input(u16),
    /// The k-th temporary, of the full iteration shape.
    Temporary(u16),
}

/// One kernel of a plan: a Program on inputs of the whole program and temporaries.
#[derive(Clone, Debug)]
pub struct Segment {
    /// The part of the program; its scalars are those of the whole.
    pub program: Program,
    /// Where each of its inputs comes from.
    pub inputs: Vec<Place>,
    /// For each of its outputs: an output number of the whole program, or a temporary.
    pub outputs: Vec<Target>,
}

/// Where a segment's output goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The k-th output of the whole program.
    Output(u16),
    /// The k-th temporary.
    Temporary(u16),
}

/// Cuts `program` into segments within `limits`. One segment, the program itself, where it fits.
pub fn plan(program: &Program, limits: Limits) -> Vec<Segment> {
    assert!(
        limits.instructions >= 1 && limits.bindings >= 4,
        "a kernel holds at least one instruction of three operands"
    );
    let whole = program.inputs_read().iter().filter(|r| **r).count() + program.outputs.len();
    if program.len() <= limits.instructions && whole <= limits.bindings {
        let inputs = (0..program.inputs.len() as u16).map(Place::Input).collect();
        let outputs = (0..program.outputs.len() as u16).map(Target::Output).collect();
        return vec![Segment { program: program.clone(), inputs, outputs }];
    }
    Planner::new(program, limits).segments()
}

struct Planner<'p> {
    program: &'p Program,
    limits: Limits,
    /// Registers of the computing instructions, in order: the line that is cut.
    line: Vec<Reg>,
    /// For each register the position on the line of its last reader; `usize::MAX` if it is an output.
    last_use: Vec<usize>,
}

impl<'p> Planner<'p> {
    fn new(program: &'p Program, limits: Limits) -> Self {
        let line: Vec<Reg> =
            (0..program.insts.len() as Reg).filter(|&r| program.insts[r as usize].computes()).collect();
        let mut last_use = vec![0; program.insts.len()];
        for (at, &r) in line.iter().enumerate() {
            program.insts[r as usize].operands().for_each(|o| last_use[o as usize] = at);
        }
        program.outputs.iter().for_each(|&o| last_use[o as usize] = usize::MAX);
        Planner { program, limits, line, last_use }
    }

    /// Values that a segment `[from, to)` of the line reads from memory, and those it must write.
    fn traffic(&self, from: usize, to: usize) -> (Vec<Reg>, Vec<Reg>) {
        let start = self.line[from];
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for &r in &self.line[from..to] {
            for o in self.program.insts[r as usize].operands() {
                let inst = self.program.insts[o as usize];
                let from_memory = matches!(inst, Inst::Input(_)) || (inst.computes() && o < start);
                if from_memory && !reads.contains(&o) {
                    reads.push(o);
                }
            }
            if self.last_use[r as usize] >= to {
                writes.push(r);
            }
        }
        (reads, writes)
    }

    /// Shortest path over cut positions, the cost of a segment being the values it writes and reads.
    fn cuts(&self) -> Vec<usize> {
        let n = self.line.len();
        let mut best = vec![(usize::MAX, 0); n + 1];
        best[0].0 = 0;
        for from in 0..n {
            if best[from].0 == usize::MAX {
                continue;
            }
            for to in from + 1..=n.min(from + self.limits.instructions) {
                let (reads, writes) = self.traffic(from, to);
                if to > from + 1 && reads.len() + writes.len() > self.limits.bindings {
                    // A longer segment may close more values than it opens, so look on.
                    continue;
                }
                let cost = best[from].0 + reads.len() + writes.len();
                if cost < best[to].0 {
                    best[to] = (cost, from);
                }
            }
        }
        let mut cuts = vec![n];
        while let Some(&to) = cuts.last()
            && to > 0
        {
            cuts.push(best[to].1);
        }
        cuts.reverse();
        cuts
    }

    fn segments(&self) -> Vec<Segment> {
        let p = self.program;
        let mut temporaries: Vec<Reg> = Vec::new();
        let mut segments = Vec::new();
        let mut copies: Vec<(Reg, Target)> = Vec::new();
        let cuts = if self.line.is_empty() { vec![0] } else { self.cuts() };
        for w in cuts.windows(2) {
            let (reads, writes) = self.traffic(w[0], w[1]);
            let mut targets = Vec::new();
            for &r in &writes {
                let outputs: Vec<Target> =
                    (0..p.outputs.len()).filter(|&k| p.outputs[k] == r).map(|k| Target::Output(k as u16)).collect();
                let read_later = self.line[w[1]..].iter().any(|&l| p.insts[l as usize].operands().any(|o| o == r));
                if outputs.len() == 1 && !read_later {
                    targets.push((r, outputs[0]));
                } else {
                    // A value with several destinations is written once and copied, which keeps the bindings few.
                    targets.push((r, Target::Temporary(temporaries.len() as u16)));
                    temporaries.push(r);
                    copies.extend(outputs.into_iter().map(|t| (r, t)));
                }
            }
            segments.push(self.segment(&reads, &self.line[w[0]..w[1]], &targets, &temporaries));
        }
        // Outputs that nothing computes: an input, a scalar or a literal.
        let leaves = (0..p.outputs.len()).filter(|&k| !p.insts[p.outputs[k] as usize].computes());
        copies.extend(leaves.map(|k| (p.outputs[k], Target::Output(k as u16))));
        for (r, target) in copies {
            let in_memory = !matches!(p.insts[r as usize], Inst::Scalar(_) | Inst::Const(_));
            let reads: Vec<Reg> = in_memory.then_some(r).into_iter().collect();
            segments.push(self.segment(&reads, &[], &[(r, target)], &temporaries));
        }
        segments
    }

    fn segment(&self, reads: &[Reg], body: &[Reg], targets: &[(Reg, Target)], temporaries: &[Reg]) -> Segment {
        let place = |r: &Reg| match self.program.insts[*r as usize] {
            Inst::Input(k) => Place::Input(k),
            // Whatever a later segment reads was given a temporary when its own segment was made.
            _ => Place::Temporary(temporaries.iter().position(|t| t == r).map_or(u16::MAX, |at| at as u16)),
        };
        Segment {
            inputs: reads.iter().map(place).collect(),
            program: self.extract(reads, body, &targets.iter().map(|t| t.0).collect::<Vec<_>>()),
            outputs: targets.iter().map(|t| t.1).collect(),
        }
    }

    /// The instructions `body` as a program of its own that reads `reads` and gives `outputs`.
    fn extract(&self, reads: &[Reg], body: &[Reg], outputs: &[Reg]) -> Program {
        let p = self.program;
        let types: Vec<Compute> = reads.iter().map(|&r| p.types[r as usize]).collect();
        let mut part = Program { inputs: types, scalars: p.scalars.clone(), ..Program::default() };
        let mut at = vec![Reg::MAX; p.insts.len()];
        let mut emit = |part: &mut Program, r: Reg, inst: Inst| {
            at[r as usize] = part.insts.len() as Reg;
            part.insts.push(inst.map(|o| at[o as usize]));
            part.types.push(p.types[r as usize]);
        };
        for (k, &r) in reads.iter().enumerate() {
            emit(&mut part, r, Inst::Input(k as u16));
        }
        for r in 0..p.insts.len() as Reg {
            // Literals and scalars are no bindings: each segment has its own.
            if matches!(p.insts[r as usize], Inst::Scalar(_) | Inst::Const(_)) {
                emit(&mut part, r, p.insts[r as usize]);
            }
        }
        for &r in body {
            emit(&mut part, r, p.insts[r as usize]);
        }
        part.outputs = outputs.iter().map(|&o| at[o as usize]).collect();
        part.without_dead_code()
    }
}

#[cfg(test)]
mod tests {
    use super::super::trace;
    use super::*;

    const F: Compute = Compute::F32;

    #[test]
    fn every_segment_keeps_the_limits_and_every_output_is_written_once() {
        let p = trace(&[F, F, F], &[F], |x, s| {
            let mut v = x[0];
            let mut outs = vec![];
            for k in 0..40 {
                v = (v * x[k % 3] + s[0]).sin() * (v - x[(k + 1) % 3]);
                if k % 13 == 0 {
                    outs.push(v);
                }
            }
            outs.push(v);
            outs.push(x[2]);
            outs
        });
        let limits = Limits { instructions: 8, bindings: 4 };
        let segments = plan(&p, limits);
        let mut written = vec![0; p.outputs.len()];
        for s in &segments {
            assert!(s.program.len() <= 8, "{}", s.program.len());
            assert!(s.inputs.len() + s.outputs.len() <= 4 || s.program.len() == 1, "{s:?}");
            for t in &s.outputs {
                if let Target::Output(k) = t {
                    written[*k as usize] += 1;
                }
            }
        }
        assert!(written.iter().all(|&w| w == 1));
        assert!(segments.len() > 4);
    }
}
