"""Events as they follow from saves."""
