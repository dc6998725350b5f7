
# What lives in the repository.
function __git_agentproto_live
    set -l typed (commandline -opc)
    set -e typed[1]
    command git agentproto __complete -- $typed (commandline -ct) 2>/dev/null
end
complete -c git-agentproto -f -n 'not __fish_seen_subcommand_from --' -a '(__git_agentproto_live)'

# git agentproto …: the rest of the line is completed as that of git-agentproto.
function __git_agentproto_through_git
    set -l typed (commandline -opc)
    set -l at (contains -i -- agentproto $typed)
    or return 1
    set -e typed[1..$at]
    complete -C "git-agentproto "(string join ' ' -- (string escape -- $typed) (commandline -ct))
end
complete -c git -f -n '__fish_seen_subcommand_from agentproto' -a '(__git_agentproto_through_git)'
complete -c git -f -n 'not __fish_seen_subcommand_from agentproto' -a agentproto -d 'Gate, approve and commit the work of coding agents'
