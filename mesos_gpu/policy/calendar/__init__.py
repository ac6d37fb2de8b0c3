"""The calendar: local times, and what may be booked beside what is booked."""
