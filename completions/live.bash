# What lives in the repository takes the place of what is fixed, where a value of that kind is typed.
_agentproto_live() {
    local line live=()
    while IFS= read -r line; do
        live+=("$line")
    done < <(command git agentproto __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
    if [[ ${#live[@]} -gt 0 ]]; then
        COMPREPLY=("${live[@]}")
    fi
}

# git-agentproto …
_agentproto_direct() {
    local name=$1 cur=$2 prev=$3
    # What follows -- is a command of somebody else.
    local word
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        if [[ $word == -- ]]; then
            COMPREPLY=()
            return 0
        fi
    done
    _agentproto "$name" "$cur" "$prev"
    _agentproto_live
}

# git agentproto …: called by git's own completion.
_git_agentproto() {
    local at=1 count=$COMP_CWORD
    local typed=("${COMP_WORDS[@]}")
    while [[ $at -lt $count && ${typed[at]} != agentproto ]]; do
        at=$((at + 1))
    done
    local -a COMP_WORDS
    COMP_WORDS=(git-agentproto "${typed[@]:at+1}")
    local COMP_CWORD=$((count - at))
    [[ $COMP_CWORD -gt 0 ]] || return 0
    _agentproto_direct git-agentproto "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
}

complete -F _agentproto_direct -o bashdefault -o default git-agentproto
