"""Facts about GB10 and vLLM: option tables for each vLLM version, log lines, drafters, and the hardware rules."""
