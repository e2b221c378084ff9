"""What an audit is made of: its rows, source lines, and a world of fake ranks to run in."""
