"""What is known about GB10 and vLLM: option tables for each vLLM version, and the rules of the hardware."""
