//! Where in the embedding program something was done: two numbers that the program's language turns into file and line when
//! a message is written. Nothing here knows that language.

use std::cell::Cell;
use std::fmt;
use std::sync::OnceLock;

/// A place in the embedding program. The default is a place that nobody knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSite {
    /// The piece of code, by a number its language gave it; 0 where the place is not known.
    pub unit: u32,
    /// How far into it.
    pub offset: u32,
}

/// A place as people read it.
#[derive(Clone, Debug)]
pub struct Line {
    /// The file's name.
    pub file: String,
    /// The line's number, from 1.
    pub number: u32,
    /// The function it is in.
    pub function: String,
    /// What it says, if the file can be read.
    pub text: Option<String>,
}

/// What the embedding language knows of places.
#[derive(Clone, Copy)]
pub struct Language {
    /// The place that runs on this thread now. Not asked while one is held.
    pub here: fn() -> CallSite,
    /// A place as people read it. May run that language's code: whoever asks holds no lock.
    pub describe: fn(CallSite) -> Option<Line>,
}

static LANGUAGE: OnceLock<Language> = OnceLock::new();

/// Says who knows places; the first to say so remains.
pub fn set_language(language: Language) {
    let _ = LANGUAGE.set(language);
}

thread_local! {
    /// The place for which this thread works, where its language cannot be asked.
    static HELD: Cell<Option<CallSite>> = const { Cell::new(None) };
}

/// Until it is dropped, the thread works for the place it was made for.
pub struct Held(Option<CallSite>);

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(self.0);
    }
}

impl CallSite {
    /// From now on this thread works for one place.
    pub fn hold(site: CallSite) -> Held {
        Held(HELD.replace(Some(site)))
    }

    /// The place of the embedding program for which this thread works now.
    #[inline]
    pub fn here() -> CallSite {
        if let Some(held) = HELD.get() {
            return held;
        }
        LANGUAGE.get().map_or_else(CallSite::default, |language| (language.here)())
    }

    /// Whether the place is known.
    #[inline]
    pub fn is_known(self) -> bool {
        self.unit != 0
    }

    /// The place as people read it, if it is known. May run code of the embedding language.
    pub fn line(self) -> Option<Line> {
        if self.is_known() { (LANGUAGE.get()?.describe)(self) } else { None }
    }
}

/// As in a Python traceback, so that editors and terminals make it a link.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  File \"{}\", line {}, in {}", self.file, self.number, self.function)?;
        self.text.as_ref().map_or(Ok(()), |text| write!(f, "\n    {text}"))
    }
}
