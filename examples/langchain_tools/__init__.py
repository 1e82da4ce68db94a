"""Tools of LangChain as tools of an agent."""
