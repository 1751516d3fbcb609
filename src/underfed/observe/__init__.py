"""The eyes: starting a command, the agent inside its processes, and what the machine says of itself."""
