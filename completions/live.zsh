# Values of no fixed kind: what lives in the repository, else files.
_git-agentproto-value() {
    local -a live
    live=(${(f)"$(command git agentproto __complete -- "${(@Q)agentproto_words[2,agentproto_current]}" 2>/dev/null)"})
    if (( $#live )); then
        compadd -a live
    else
        _default
    fi
}

# git-agentproto …, and git agentproto …, for which git's own completion calls this function by its name.
_git-agentproto() {
    local -a agentproto_words=("${words[@]}")
    local -i agentproto_current=$CURRENT
    _git-agentproto-fixed "$@"
}

zstyle ':completion:*:*:git:*' user-commands agentproto:'gate, approve and commit the work of coding agents'

if [ "$funcstack[1]" = "_git-agentproto" ]; then
    _git-agentproto "$@"
else
    compdef _git-agentproto git-agentproto
fi
