"""Memory that messages take: counted before they are parsed, bounded while they are answered, given back."""
