# Bash completion of plumb: its commands, and its flags from --help itself.
_plumb() {
  local word=${COMP_WORDS[COMP_CWORD]} commands flags
  commands="jobs verdicts watch explain report ui replay export-trace reproduce golden formats"
  if [[ $word == -* ]]; then
    flags=$(plumb --help 2>/dev/null | sed -n 's/^ *\(--[a-z_]*\) (.*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  elif ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -F _plumb plumb
