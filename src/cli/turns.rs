//! Flags of what the end of a turn leads to: which ends count, what red gates lead to, whether the sessions end.

use super::error::CliError;
use crate::{
    code::Code,
    domain::policy::{OnEnd, OnFail},
    ledger::TurnsAsk,
    limits,
};

/// The flags, as typed.
#[derive(Debug, Default, clap::Args)]
pub(super) struct TurnFlags {
    /// Which ends of a turn count: those by which the agent is finished, or every one, which a person has to approve
    /// then [default: finished]
    #[arg(long, value_enum, value_name = "finished|gate", hide_possible_values = true)]
    on_end: Option<OnEndArg>,
    /// On a red gate, tell the sessions TEXT and let them work on; {code} {verdict} {tail} {gate} {attempt} {max} stand
    /// for what happened [default: our own words]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    nudge: Option<String>,
    /// How often they are told, at most [default: 2]
    #[arg(long, value_name = "N")]
    max_retries: Option<u32>,
}

/// Flags of what is always so for an agent that is started for its policy, as typed.
#[derive(Debug, Default, clap::Args)]
pub(super) struct SessionFlags {
    /// An agent that is one run of its command is run again for it
    #[arg(long)]
    reprompt: bool,
    /// End the sessions when the policy is over
    #[arg(long)]
    end_session: bool,
}

/// Which ends of a turn count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OnEndArg {
    Finished,
    Gate,
}

impl TurnFlags {
    /// What the flags mean for a policy on sessions that are there.
    ///
    /// # Errors
    /// A number that is none of retries.
    pub(super) fn ask(self, sessions: &SessionFlags) -> Result<TurnsAsk, CliError> {
        let &SessionFlags { reprompt, end_session } = sessions;
        let any = self.nudge.is_some() || self.max_retries.is_some() || reprompt;
        let on_fail = any.then(|| self.on_fail(reprompt)).transpose()?;
        Ok(TurnsAsk { on_end: self.on_end(), on_fail, end_session })
    }

    /// The same for an agent that is started for the policy: it is told of red gates, and ends with it.
    ///
    /// # Errors
    /// As there.
    pub(super) fn ask_of_run(self) -> Result<TurnsAsk, CliError> {
        let none = self.max_retries == Some(0);
        if none && self.nudge.is_some() {
            let message = "--nudge says something that --max-retries 0 lets nobody hear";
            return Err(CliError::new(Code::Usage, message));
        }
        let on_fail = if none { None } else { Some(self.on_fail(true)?) };
        Ok(TurnsAsk { on_end: self.on_end(), on_fail, end_session: true })
    }

    fn on_end(&self) -> OnEnd {
        match self.on_end {
            Some(OnEndArg::Gate) => OnEnd::Gate,
            Some(OnEndArg::Finished) | None => OnEnd::Finished,
        }
    }

    fn on_fail(&self, reprompt: bool) -> Result<OnFail, CliError> {
        let max_retries = self.max_retries.unwrap_or(limits::RETRIES_DEFAULT);
        require_retries("--max-retries", max_retries)?;
        Ok(OnFail { nudge: self.nudge.clone(), max_retries, reprompt })
    }
}

/// A number of retries that can be asked for.
///
/// # Errors
/// It is out of its bounds.
pub(super) fn require_retries(name: &str, retries: u32) -> Result<(), CliError> {
    let most = limits::RETRIES_MAX;
    if (1..=most).contains(&retries) {
        return Ok(());
    }
    let message = format!("{name}: {retries}, from 1 to {most} is accepted");
    Err(CliError::new(Code::Usage, message).about(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_typed_means_the_end_and_a_run_is_told_of_red_gates() {
        let plain = TurnFlags::default().ask(&SessionFlags::default()).unwrap();
        assert_eq!(plain, TurnsAsk::default());
        let run = TurnFlags::default().ask_of_run().unwrap();
        let told = OnFail { nudge: None, max_retries: 2, reprompt: true };
        assert_eq!((run.on_fail, run.end_session), (Some(told), true));
        let never = TurnFlags { max_retries: Some(0), ..TurnFlags::default() };
        assert_eq!(never.ask_of_run().unwrap().on_fail, None);
    }

    #[test]
    fn retries_are_bounded() {
        for (retries, fits) in [(0, false), (1, true), (20, true), (21, false)] {
            let flags = TurnFlags { max_retries: Some(retries), ..TurnFlags::default() };
            assert_eq!(flags.ask(&SessionFlags::default()).is_ok(), fits, "{retries}");
        }
    }
}
