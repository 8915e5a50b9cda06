# Bash completion of plumb and plumblined: plumb's commands, and the flags of each from what --help says.
_plumbline() {
  local program=$1 word=${COMP_WORDS[COMP_CWORD]} commands flags
  commands="jobs verdicts watch follow explain report ui replay export-trace reproduce golden formats"
  if [[ $word == -* ]]; then
    flags=$("$program" --help 2>/dev/null | sed -n 's/^ *\(--[a-z_]*\) (.*/\1/p')
    [[ $program == *plumblined ]] && flags=${flags//_/-}
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  elif [[ $program == *plumb ]] && ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -F _plumbline plumb plumblined
