"""How a deployment changes what runs: `plan` says in which order, `moves` what to do now, `pace` when to try again."""
