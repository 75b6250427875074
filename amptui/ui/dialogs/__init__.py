"""Questions: values that say what is asked, and the one widget that asks them."""
