"""What keeps a session and its way back safe: folder, lock, store, checkpoint records, restore. No torch."""
